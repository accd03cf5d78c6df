"""The rules of the dashboard's login, so that pages can say beforehand what would be refused.

Owns reading the rules. The server decides: a login whose rules are unknown, incomplete or of
another form may try everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.errors import NoRespondersError, OperationTimeoutError, PermissionsError
from tradewind.dashboard.data.load_and_usage import ANSWER_SECONDS, part_of
from tradewind.errors import JSON_ERRORS
from tradewind.subjects import is_subset

if TYPE_CHECKING:
    from tradewind.client.connection import Connection

USER_INFO: Final = "$SYS.REQ.USER.INFO"
RULES_MAX: Final = 10_000


class Rights(msgspec.Struct, frozen=True):
    """The subjects that a login may publish to. `allow` None: no rule."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    def may_publish(self, subject: str) -> bool:
        """Whether the rules permit a subject."""
        if any(is_subset(subject, each) for each in self.deny):
            return False
        return self.allow is None or any(is_subset(subject, each) for each in self.allow)

    def refusal(self, subject: str) -> str:
        """Why a subject may not be published; empty if it may."""
        if not subject or self.may_publish(subject):
            return ""
        return f"This login may not publish to {subject}."


ALL_RIGHTS: Final = Rights()


async def ask_rights(connection: Connection) -> Rights:
    """Ask the server for the rules of this login."""
    try:
        answer = await connection.request(USER_INFO, timeout=ANSWER_SECONDS)
        document = msgspec.json.decode(answer.data, type=dict[str, Any])
    except (OperationTimeoutError, NoRespondersError, PermissionsError, *JSON_ERRORS):
        return ALL_RIGHTS
    return rights_of(part_of(document, "data"))


def rights_of(data: dict[str, Any]) -> Rights:
    """The rights in an answer about a user."""
    publish = part_of(part_of(data, "permissions"), "publish")
    allow, deny = publish.get("allow"), publish.get("deny")
    for rules in (allow, deny):
        if rules is not None and not _is_known(rules):
            return ALL_RIGHTS
    # An empty list is how servers write that there is no rule.
    return Rights(tuple(allow) if allow else None, tuple(deny or ()))


def _is_known(rules: object) -> bool:
    return (
        isinstance(rules, list)
        and len(rules) <= RULES_MAX
        and all(isinstance(each, str) for each in rules)
    )
