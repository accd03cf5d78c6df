"""The exceptions of the client: one class per cause.

Owns the class hierarchy and the translation of the server's `-ERR` texts. Each text says what to
do. All classes derive from `tradewind.errors.TradewindError`, and those about time from
`TimeoutError` too.
"""

from __future__ import annotations

from tradewind.errors import ConfigError, TradewindError


class ClientError(TradewindError):
    """Base of everything that the client library raises about a connection or a message."""


class OptionsError(ConfigError, ClientError):
    """An argument of `connect` or a context file is wrong."""


class CredentialsError(OptionsError):
    """A credentials file or seed cannot be used. Its content is never repeated."""


class ConnectionClosedError(ClientError):
    """The connection is closed and stays so; `reason` is the error that ended it, if any did."""

    def __init__(self, text: str, reason: Exception | None = None) -> None:
        self.reason = reason
        super().__init__(text)


class DrainingError(ClientError):
    """The connection or subscription is being drained: nothing new can be started on it."""


class DisconnectedError(ClientError):
    """The server went away in the middle of an operation whose outcome is unknown now."""


class StaleConnectionError(DisconnectedError):
    """The server no longer answers pings."""


class NoServersError(ClientError):
    """No server could be reached; `attempts` has the last error of each, by address."""

    def __init__(self, text: str, attempts: dict[str, Exception] | None = None) -> None:
        self.attempts = attempts or {}
        super().__init__(text)


class OperationTimeoutError(ClientError, TimeoutError):
    """Nothing came in the time that the caller gave."""


class DrainTimeoutError(OperationTimeoutError):
    """Messages were still unread when the time for draining was over."""


class NoRespondersError(ClientError):
    """No subscriber listens on the subject of a request; the server reports this immediately."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        super().__init__(
            f"nobody is listening on {subject!r}: start a responder, or check subject and account"
        )


class ServerError(ClientError):
    """The server sent an error; `wire_text` is its own text."""

    def __init__(self, text: str, wire_text: str) -> None:
        self.wire_text = wire_text
        super().__init__(text)


class AuthorizationError(ServerError):
    """The server refused the login, or ended it because it expired or was revoked."""


class PermissionsError(ServerError):
    """The login may not publish or subscribe to a subject; the connection continues."""


class ConnectionLimitError(ServerError):
    """The server or the account has as many connections as it allows."""


class SubscriptionLimitError(ServerError):
    """The connection or the account has as many subscriptions as it is allowed."""


class TlsError(ClientError):
    """TLS is required by one side and not possible with the other, or its handshake failed."""


class BadSubjectError(ClientError):
    """A subject or queue name cannot be sent."""


class BadHeaderError(ClientError):
    """A header cannot be sent."""


class MaxPayloadError(ClientError):
    """A message is larger than the server accepts."""


class BadPayloadError(ClientError, TypeError):
    """A payload is neither bytes nor str."""


class PendingLimitError(ClientError):
    """The limit of bytes waiting to be sent is reached; no part of this message was queued."""


class SubscriptionClosedError(ClientError):
    """The subscription has ended and all its messages are read."""


class ServiceError(ClientError):
    """A service answers with an error; handlers raise it, and `services.request` does too.

    `code` is a number as text, `description` is for people.
    """

    def __init__(self, code: int | str, description: str) -> None:
        self.code = str(code)
        self.description = description
        super().__init__(f"{self.code}: {description}")


class AlreadyAcknowledgedError(ClientError):
    """A message was acknowledged before, and can be only once."""


class NoReplyError(ClientError):
    """A message without a reply subject cannot be answered or acknowledged."""


class NotJetStreamError(ClientError):
    """The message was not delivered by a consumer of a stream."""


class JetStreamUnavailableError(ClientError):
    """No server answers requests to the JetStream API: JetStream is off, or in another account."""


class NoTransactionsError(JetStreamUnavailableError):
    """Transactions, and what is made of them, need a Tradewind server with JetStream."""


class NotTradewindError(ClientError):
    """The server has no API of Tradewind's own: it is another one, or has no JetStream."""


class NoLeaderError(OperationTimeoutError):
    """No server of a cluster answered for a stream or for JetStream itself, because a leader is
    being elected or too few servers run. The same request works later.
    """


class BadAnswerError(ClientError):
    """The server answered in a way that this version does not understand."""


class PublishError(ClientError):
    """Messages of `publish_async` were not stored; `failures` has the first ones with the reason.

    `count` is how many there were in all.
    """

    def __init__(self, text: str, failures: list[tuple[str, Exception]], count: int) -> None:
        self.failures = failures
        self.count = count
        super().__init__(text)


class BucketNotFoundError(ClientError):
    """There is no key-value bucket or object store of this name."""


class BucketExistsError(ClientError):
    """A bucket of this name exists, with other settings than those asked for."""


class BadKeyError(ClientError):
    """A text that cannot be a key, or a pattern of keys."""


class CodecError(ClientError):
    """A stored key or value is not what a codec makes, so that it cannot be decoded."""


class ScheduleNotFoundError(ClientError):
    """No schedule is stored under the subject."""


class KeyExistsError(ClientError):
    """The key has a value already; `revision` is its last one."""

    def __init__(self, text: str, revision: int) -> None:
        self.revision = revision
        super().__init__(text)


class WrongRevisionError(ClientError):
    """The key was changed in the meantime; `revision` is its last one, if that is known."""

    def __init__(self, text: str, revision: int | None) -> None:
        self.revision = revision
        super().__init__(text)


class KeyNotFoundError(ClientError):
    """The key has no value: it was never set, was deleted, or has expired."""


class SchemaNotFoundError(ClientError):
    """There is no schema of this name, or no such version of it."""


class SchemaExistsError(ClientError):
    """A schema or a version of it exists already."""


class SchemaViolationError(ClientError):
    """A payload does not obey the schema of its subject; `problem` names the field.

    `schema` is the version, such as "order.2".
    """

    def __init__(self, subject: str, schema: str, problem: str) -> None:
        self.subject = subject
        self.schema = schema
        self.problem = problem
        super().__init__(f"the payload for {subject!r} does not obey schema {schema}: {problem}")


class BadNumberError(ClientError):
    """The value of a key is not a whole number of 64 bits, or would no longer be one."""


class LockLostError(ClientError):
    """A lock is no longer held: its key expired, was deleted, or could not be renewed in time."""


class LockTimeoutError(OperationTimeoutError):
    """Another client held the lock for all of the time that the caller gave."""


class ObjectNotFoundError(ClientError):
    """There is no object of this name, or it was deleted."""


class ObjectExistsError(ClientError):
    """An object of this name exists, and a link or another object would take its place."""


class ObjectLinkError(ClientError):
    """A link leads nowhere, in a circle, or to a whole store where an object is wanted."""


class DamagedObjectError(ClientError):
    """An object is damaged: chunks are missing, or the SHA-256 sum differs."""


class UploadError(ClientError):
    """An object could not be stored; nothing of it is visible."""


class ConsumerGoneError(ClientError):
    """The consumer was deleted, or cannot be used in this way; nothing more will come from it."""


_CONNECTION_LIMITS = ("maximum connections exceeded", "maximum account active connections exceeded")
_REFUSALS = {
    "authorization violation": "check user, password, token, key or credentials file",
    "authentication timeout": "the login took too long",
    "user authentication expired": "get new credentials",
    "account authentication expired": "the account needs a new token",
    "user authentication revoked": "get new credentials",
}


def error_from_wire(wire_text: str) -> ServerError:
    """The error for a text that the server sent in `-ERR`."""
    lower = wire_text.lower()
    if lower in _REFUSALS:
        return AuthorizationError(
            f"the server refused the login: {wire_text} ({_REFUSALS[lower]})", wire_text
        )
    if lower.startswith("permissions violation"):
        return PermissionsError(
            f"{wire_text}: the permissions of this user do not include it", wire_text
        )
    if lower in _CONNECTION_LIMITS:
        return ConnectionLimitError(f"the server accepts no more clients: {wire_text}", wire_text)
    if lower == "maximum subscriptions exceeded":
        return SubscriptionLimitError(
            f"{wire_text}: unsubscribe something first, or raise max_subscriptions", wire_text
        )
    return ServerError(f"the server reports: {wire_text}", wire_text)


def closes_connection(error: ServerError) -> bool:
    """Whether the server ends the connection after this error."""
    if isinstance(error, PermissionsError):
        return False
    return error.wire_text.lower() not in (
        "invalid subject",
        "invalid publish subject",
        "maximum subscriptions exceeded",
    )
