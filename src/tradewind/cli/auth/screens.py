"""The output of `tradewind auth` for operators, accounts and users.

Owns the layout only. It never shows a seed.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tradewind.cli.auth.keyring import scopes_of
from tradewind.cli.frame.output import Columns
from tradewind.cli.frame.text_formats import count_text, size_text
from tradewind.jwt import AccountClaims, Claims, OperatorClaims, UserClaims
from tradewind.jwt.claims import UserRestrictions


def time_text(seconds: int) -> str:
    """A time of a JWT."""
    if not seconds:
        return "never"
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _head(title: str, claims: Claims) -> Columns:
    columns = Columns(title)
    columns.row("Key", claims.sub)
    columns.row("Issued by", claims.iss)
    columns.row("Issued", time_text(claims.iat))
    columns.row("Expires", time_text(claims.exp))
    return columns


def operator_screen(name: str, claims: OperatorClaims) -> Columns:
    """One operator."""
    fields = claims.nats
    columns = _head(f"Operator {name}", claims)
    columns.row_if("System account", fields.system_account)
    columns.row_if("Signing keys", "\n".join(fields.signing_keys or ()))
    columns.row("Signing keys required", fields.strict_signing_key_usage)
    columns.row_if("Account server", fields.account_server_url)
    columns.row_if("Tags", fields.tags)
    return columns


def account_screen(name: str, claims: AccountClaims) -> Columns:
    """One account."""
    fields, limits = claims.nats, claims.nats.limits
    columns = _head(f"Account {name}", claims)
    columns.row_if("Description", fields.description)
    columns.row_if("Tags", fields.tags)
    keys = [key for key, scope in claims.scopes().items() if scope is None]
    columns.row_if("Signing keys", "\n".join(keys))
    columns.section("Limits")
    columns.row("Connections", _count(limits.conn))
    columns.row("Subscriptions of a connection", _count(limits.subs))
    columns.row("Message", _size(limits.payload))
    columns.row("Bearers", not limits.disallow_bearer)
    columns.row("JetStream", claims.has_jetstream())
    if claims.has_jetstream():
        columns.row("JetStream memory", _size(limits.mem_storage))
        columns.row("JetStream disk", _size(limits.disk_storage))
        columns.row("Streams", _count(limits.streams))
        columns.row("Consumers", _count(limits.consumer))
    for scope in scopes_of(claims):
        columns.section(f"Role {scope.role}")
        columns.row("Key", scope.key)
        _restriction_rows(columns, scope.template)
    if fields.revocations:
        columns.section("Revocations")
        for key, at in sorted(fields.revocations.items()):
            columns.row(key, f"issued until {time_text(at)}")
    return columns


def user_screen(name: str, claims: UserClaims) -> Columns:
    """One user."""
    columns = _head(f"User {name}", claims)
    columns.row("Account", claims.account)
    columns.row_if("Tags", claims.nats.tags)
    _restriction_rows(columns, claims.nats)
    return columns


def _restriction_rows(columns: Columns, fields: UserRestrictions) -> None:
    columns.row_if("May publish to", fields.pub.allow)
    columns.row_if("May not publish to", fields.pub.deny)
    columns.row_if("May subscribe to", fields.sub.allow)
    columns.row_if("May not subscribe to", fields.sub.deny)
    columns.row_if("From", fields.src)
    columns.row_if("Connections", fields.allowed_connection_types)
    columns.row_if("Bearer", fields.bearer_token)
    if fields.subs > 0:
        columns.row("Subscriptions", fields.subs)
    if fields.payload > 0:
        columns.row("Message", size_text(fields.payload))


def _count(limit: int) -> str:
    """Unlike elsewhere 0 is a limit in JWTs."""
    return "unlimited" if limit < 0 else count_text(limit)


def _size(limit: int) -> str:
    return "unlimited" if limit < 0 else size_text(limit)
