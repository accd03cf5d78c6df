"""Requests of the system account about account JWTs: push, look up, list, pack and delete.

Owns the subjects, the order of the checks and the texts of the responses, which are those of
nats-server because tools such as nsc read them. A response is sent when the change is on disk. One
thread writes files, in the order of the requests.

    $SYS.REQ.CLAIMS.UPDATE                  JWT                     folders only
    $SYS.REQ.ACCOUNT.<key>.CLAIMS.UPDATE    JWT
    $SYS.ACCOUNT.<key>.CLAIMS.UPDATE        JWT
    $SYS.REQ.ACCOUNT.<key>.CLAIMS.LOOKUP                            full folders only
    $SYS.REQ.CLAIMS.LIST                                            folders only
    $SYS.REQ.CLAIMS.PACK                    hash, or nothing        full folders only
    $SYS.REQ.CLAIMS.DELETE                  JWT of the operator     folders only
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from tradewind import nkeys
from tradewind.broker.accounts import InternalMessage
from tradewind.durations import SECOND_NS
from tradewind.jwt import AccountClaims, JwtError, decode_as
from tradewind.jwt.claim_rules import blocking_texts, issues
from tradewind.jwt.claims import GenericClaims
from tradewind.monitor.formats import compact_json
from tradewind.monitor.system_events import SystemEventServer
from tradewind.server.operators.account_book import INVALID
from tradewind.server.operators.resolvers import HASH_BYTES, FolderResolver, ResolverError
from tradewind.status_codes import FAILED, OK

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.server.operators.file_thread import FileThread
    from tradewind.server.operators.operator_mode import Operators

PACKED_PER_STEP = 64
NOBODY = "n/a"


class ClaimsDone(msgspec.Struct, kw_only=True):
    """The result of a successful request."""

    account: str | UnsetType = UNSET
    code: int = OK
    message: str = ""


class Failure(msgspec.Struct, kw_only=True):
    """The reason why a request failed."""

    account: str | UnsetType = UNSET
    code: int = FAILED
    description: str = ""


class ClaimsAnswer(msgspec.Struct, kw_only=True):
    """The response to every request except LIST."""

    server: SystemEventServer
    data: ClaimsDone | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class Listing(msgspec.Struct, kw_only=True):
    """The response to LIST."""

    data: list[str]
    server: SystemEventServer


class ClaimsRequests:
    """Answers requests in the system account; used in the event loop only."""

    def __init__(
        self,
        operators: Operators,
        account: Account,
        files: FileThread,
        server_info: Callable[[], SystemEventServer],
    ) -> None:
        self._operators = operators
        self._account = account
        self._files = files
        self._server_info = server_info

    def start(self) -> None:
        """Subscribe to the requests that the resolver can answer."""
        folder = self._operators.resolver
        handlers: dict[str, Callable[[InternalMessage], None]] = {
            "$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE": self._update_one,
            "$SYS.ACCOUNT.*.CLAIMS.UPDATE": self._update_one,
        }
        if isinstance(folder, FolderResolver):
            handlers["$SYS.REQ.CLAIMS.UPDATE"] = partial(self._update_file, folder, "")
            handlers["$SYS.REQ.CLAIMS.LIST"] = partial(self._list, folder)
            handlers["$SYS.REQ.CLAIMS.DELETE"] = partial(self._delete, folder)
            if folder.is_full:
                handlers["$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP"] = partial(self._look_up, folder)
                handlers["$SYS.REQ.CLAIMS.PACK"] = partial(self._pack, folder)
        for subject, handler in handlers.items():
            self._account.subscribe(subject, handler)

    # ---------------------------------------------------------------- answers

    def _send(self, message: InternalMessage, payload: bytes) -> None:
        if message.reply:
            self._account.publish(message.reply, payload)

    def _tell(self, message: InternalMessage, text: str, account: str = "") -> None:
        done = ClaimsDone(account=account or UNSET, message=text)
        self._send(message, compact_json(ClaimsAnswer(server=self._server_info(), data=done)))

    def _refuse(self, message: InternalMessage, text: str, why: str, account: str = "") -> None:
        self._operators.log.error(f"{text} - {account} - {why}" if account else f"{text} - {why}")
        failure = Failure(account=account or UNSET, description=f"{text} - {why}")
        self._send(message, compact_json(ClaimsAnswer(server=self._server_info(), error=failure)))

    # ---------------------------------------------------------------- updates

    def _update_one(self, message: InternalMessage) -> None:
        """Update the account that the subject names."""
        tokens = message.subject.split(".")
        key = tokens[3] if tokens[1] == "REQ" else tokens[2]
        folder = self._operators.resolver
        if isinstance(folder, FolderResolver):
            self._update_file(folder, key, message)
            return
        if not message.payload:
            self._refuse(message, "jwt update error", "request body is empty", key)
            return
        problem = self._learn(key, _text(message.payload))
        if problem:
            self._refuse(message, "jwt update resulted in error", problem, key)
        elif key in self._operators.book.accounts:
            self._tell(message, "jwt updated", key)
        else:
            self._tell(message, "jwt update skipped", key)

    def _learn(self, key: str, token: str) -> str:
        """Apply a JWT to an account in use; returns why it cannot be applied, or an empty text."""
        try:
            claims = decode_as(AccountClaims, token)
        except JwtError as error:
            return str(error)
        if claims.sub != key:
            return "subject does not match jwt content"
        book = self._operators.book
        is_wrong = key in book.accounts and book.learn(key, token)
        return INVALID if is_wrong else ""

    def _update_file(self, folder: FolderResolver, named: str, message: InternalMessage) -> None:
        cache = "" if folder.is_full else " cache"
        failed = f"jwt update{cache} resulted in error"
        # A request with the account in the subject must not carry headers, as on nats-server.
        token = _text(message.header + message.payload if named else message.payload)
        try:
            claims = decode_as(AccountClaims, token)
        except JwtError as error:
            key = NOBODY if folder.is_full or not named else named
            self._refuse(message, failed, str(error), key)
            return
        key = claims.sub
        if named and key != named:
            self._refuse(message, failed, "subject does not match jwt content", named)
            return
        if not nkeys.is_public(key, nkeys.ACCOUNT):
            self._refuse(message, failed, "invalid public key", key)
            return
        problems = [issue.text for issue in issues(claims, 0) if issue.is_blocking]
        if problems:
            text = f"jwt{' update cache' if cache else ''} validation failed"
            self._refuse(message, text, f"validation errors: [{' '.join(problems)}]", key)
            return
        if not folder.is_full and not folder.is_known(key):
            self._tell(message, "jwt update cache skipped", key)
            return
        try:
            folder.place_for(key)
        except ResolverError as error:
            self._refuse(message, failed, str(error), key)
            return
        self._files.run(
            partial(folder.write, key, token),
            partial(self._written, folder, key, token, message),
        )

    def _written(
        self,
        folder: FolderResolver,
        key: str,
        token: str,
        message: InternalMessage,
        error: Exception | None,
    ) -> None:
        cache = "" if folder.is_full else " cache"
        if error is not None:
            self._refuse(message, f"jwt update{cache} resulted in error", str(error), key)
            return
        folder.note(key, token, self._operators.now_ns())
        self._operators.book.ask_again(key)
        if key in self._operators.book.accounts:
            problem = self._operators.book.learn(key, token)
            if problem:
                self._operators.log.error(
                    f'DirResolver - Update for account "{key}" resulted in error {problem}'
                )
        self._tell(message, f"jwt updated{cache}", key)

    # ---------------------------------------------------------------- questions

    def _look_up(self, folder: FolderResolver, message: InternalMessage) -> None:
        key = message.subject.split(".")[3]
        if not message.reply or not nkeys.is_public(key, nkeys.ACCOUNT):
            return
        found: list[str] = []

        def read() -> None:
            found.append(folder.fetch(key) or "")

        def done(error: Exception | None) -> None:
            self._send(message, found[0].encode() if error is None else b"")

        self._files.run(read, done)

    def _list(self, folder: FolderResolver, message: InternalMessage) -> None:
        listing = Listing(data=sorted(folder.index), server=self._server_info())
        self._send(message, compact_json(listing))

    def _pack(self, folder: FolderResolver, message: InternalMessage) -> None:
        """Send a message for every account, then an empty one; only the latter if the hash is
        equal.
        """
        same = len(message.payload) == HASH_BYTES and message.payload == folder.hash()
        self._pack_some(folder, [] if same else sorted(folder.index, reverse=True), message)

    def _pack_some(self, folder: FolderResolver, left: list[str], message: InternalMessage) -> None:
        """Send the next few messages, as long as there is a subscriber."""
        if not message.reply or not self._account.has_interest(message.reply):
            return
        if not left:
            self._send(message, b"")
            return
        keys = [left.pop() for _ in range(min(PACKED_PER_STEP, len(left)))]
        lines: list[bytes] = []

        def read() -> None:
            for key in keys:
                token = folder.fetch(key)
                if token is not None:
                    lines.append(f"{key}|{token}".encode())

        def done(_error: Exception | None) -> None:
            for line in lines:
                self._send(message, line)
            self._pack_some(folder, left, message)

        self._files.run(read, done)

    # ---------------------------------------------------------------- deletions

    def _delete(self, folder: FolderResolver, message: InternalMessage) -> None:
        subject = ""
        try:
            claims = decode_as(GenericClaims, _text(message.payload))
            subject = claims.sub
            keys = self._deletable(folder, claims)
        except JwtError as error:
            self._refuse(message, f"delete accounts request by {subject} failed", str(error))
            return

        def remove() -> None:
            for key in keys:
                folder.remove(key, is_kept_aside=folder.keeps_deleted)

        self._files.run(remove, partial(self._deleted, folder, keys, message))

    def _deletable(self, folder: FolderResolver, claims: GenericClaims) -> list[str]:
        """The accounts that a request names; JwtError if the request is not permitted."""
        if not folder.may_delete:
            raise JwtError("delete must be enabled in server config")
        if not claims.is_self_signed:
            raise JwtError("not self signed")
        if claims.iss not in self._operators.book.trust.keys:
            raise JwtError("not trusted")
        problems = blocking_texts(claims, self._operators.now_ns() // SECOND_NS)
        if problems:
            raise JwtError(problems[0])
        keys: Any = claims.nats.get("accounts")
        if not isinstance(keys, list):
            raise JwtError("malformed request")
        for key in keys:
            if not isinstance(key, str) or not nkeys.is_public(key, nkeys.ACCOUNT):
                raise JwtError("malformed request")
            if key == self._operators.system_account:
                raise JwtError("not allowed to delete system account")
        return list(dict.fromkeys(keys))

    def _deleted(
        self,
        folder: FolderResolver,
        keys: list[str],
        message: InternalMessage,
        error: Exception | None,
    ) -> None:
        if error is not None:
            self._refuse(message, "deleted 0 accounts", str(error))
            return
        for key in keys:
            folder.forget(key)
            self._operators.book.delete(key)
        self._tell(message, f"deleted {len(keys)} accounts")


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "replace")
