"""Advisories and metrics about streams and consumers.

Owns the subjects and types of nats-server's advisories and metrics; their fields are in
`api.events`. An event without a subscriber is not even encoded. It never decides that something has
happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tradewind.api import event_types
from tradewind.api.base import encode
from tradewind.api.event_types import EventClient
from tradewind.api.stream_types import StreamState
from tradewind.api.times import format_time
from tradewind.broker.accounts import Account
from tradewind.jetstream.name_source import NameSource

ADVISORY_PREFIX: Final = "$JS.EVENT.ADVISORY"
AUDIT_SUBJECT: Final = f"{ADVISORY_PREFIX}.API"
METRIC_PREFIX: Final = "$JS.EVENT.METRIC"
ADVISORY_TYPE: Final = "io.nats.jetstream.advisory.v1."
OWN_ADVISORY_PREFIX: Final = "$TW.EVENT.ADVISORY"
OWN_ADVISORY_TYPE: Final = "io.tradewind.advisory.v1."
METRIC_TYPE: Final = "io.nats.jetstream.metric.v1."

# Makes an event of its fields; all events have a domain, each at its own place.
Members: TypeAlias = Callable[..., event_types.ApiEvent]

# kind of a consumer's event -> subject below the prefix, prefix of its type, members
_CONSUMER_KINDS: Final[dict[str, tuple[str, str, Members]]] = {
    "consumer_pause": (
        f"{ADVISORY_PREFIX}.CONSUMER.PAUSE",
        ADVISORY_TYPE,
        event_types.ConsumerPause,
    ),
    "consumer_group_pinned": (
        f"{ADVISORY_PREFIX}.CONSUMER.PINNED",
        ADVISORY_TYPE,
        event_types.GroupPinned,
    ),
    "consumer_group_unpinned": (
        f"{ADVISORY_PREFIX}.CONSUMER.UNPINNED",
        ADVISORY_TYPE,
        event_types.GroupUnpinned,
    ),
    "max_deliver": (
        f"{ADVISORY_PREFIX}.CONSUMER.MAX_DELIVERIES",
        ADVISORY_TYPE,
        event_types.MaxDeliver,
    ),
    "nak": (f"{ADVISORY_PREFIX}.CONSUMER.MSG_NAKED", ADVISORY_TYPE, event_types.Nak),
    "terminated": (
        f"{ADVISORY_PREFIX}.CONSUMER.MSG_TERMINATED",
        ADVISORY_TYPE,
        event_types.Terminated,
    ),
    "consumer_ack": (f"{METRIC_PREFIX}.CONSUMER.ACK", METRIC_TYPE, event_types.ConsumerAck),
}


class AdvisoryPublisher:
    """Publishes advisories and metrics; `now_ns` is the wall clock."""

    def __init__(
        self,
        names: NameSource,
        now_ns: Callable[[], int],
        domain: str = "",
        system_account: Callable[[], Account | None] = lambda: None,
    ) -> None:
        self._names = names
        self._now_ns = now_ns
        self._domain = domain
        self._system_account = system_account

    def publish(
        self, account: Account, subject: str, members: Members, kind: str, /, **fields: Any
    ) -> None:
        """Publish an event with these fields if the account has a subscriber for it."""
        if not account.has_interest(subject):
            return
        event = members(
            type=kind,
            id=self._names.event_id(),
            timestamp=format_time(self._now_ns()),
            domain=self._domain,
            **{name: _readable(value) for name, value in fields.items()},
        )
        account.publish(subject, encode(event))

    def stream_action(self, account: Account, stream: str, action: str) -> None:
        """Report that a stream was created, modified or deleted."""
        verb = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}[action]
        self.publish(
            account,
            f"{ADVISORY_PREFIX}.STREAM.{verb}.{stream}",
            event_types.StreamAction,
            ADVISORY_TYPE + "stream_action",
            stream=stream,
            action=action,
        )

    def batch_abandoned(self, account: Account, stream: str, batch: str, reason: str) -> None:
        """Report, to the system account too, that an atomic batch was abandoned before its
        commit.
        """
        for receiver, owner in ((account, ""), (self._system_account(), account.name)):
            if receiver is None:
                continue
            self.publish(
                receiver,
                f"{ADVISORY_PREFIX}.STREAM.BATCH_ABANDONED.{stream}",
                event_types.BatchAbandoned,
                ADVISORY_TYPE + "stream_batch_abandoned",
                account=owner,
                stream=stream,
                batch=batch,
                reason=reason,
            )

    def chain_broken(self, account: Account, stream: str, index: int, reason: str) -> None:
        """Report that a stream's chain does not fit its messages; nats-server has no such event."""
        self.publish(
            account,
            f"{OWN_ADVISORY_PREFIX}.STREAM.CHAIN_BROKEN.{stream}",
            event_types.ChainBroken,
            OWN_ADVISORY_TYPE + "stream_chain_broken",
            stream=stream,
            index=index,
            reason=reason,
        )

    def snapshot_create(
        self, account: Account, stream: str, state: StreamState, client: EventClient
    ) -> None:
        """Report that a backup has begun."""
        self._backup(
            account,
            stream,
            "snapshot_create",
            event_types.SnapshotCreate,
            state=state,
            client=client,
        )

    def snapshot_complete(
        self, account: Account, stream: str, start_ns: int, client: EventClient, error: str
    ) -> None:
        """Report that a backup has ended; `error` is empty if it succeeded."""
        self._backup(
            account,
            stream,
            "snapshot_complete",
            event_types.SnapshotComplete,
            **self._from_to(start_ns),
            client=client,
            error=error,
        )

    def restore_create(self, account: Account, stream: str, client: EventClient) -> None:
        """Report that the restore of a backup has begun."""
        self._backup(account, stream, "restore_create", event_types.RestoreCreate, client=client)

    def restore_complete(
        self, account: Account, stream: str, start_ns: int, size: int, client: EventClient
    ) -> None:
        """Report that a restore has ended, successfully or not."""
        self._backup(
            account,
            stream,
            "restore_complete",
            event_types.RestoreComplete,
            **self._from_to(start_ns),
            bytes=size,
            client=client,
        )

    def _from_to(self, start_ns: int) -> dict[str, Any]:
        return {"start": format_time(start_ns), "end": format_time(self._now_ns())}

    def _backup(
        self, account: Account, stream: str, kind: str, members: Members, /, **fields: Any
    ) -> None:
        subject = f"{ADVISORY_PREFIX}.STREAM.{kind.upper()}.{stream}"
        self.publish(account, subject, members, ADVISORY_TYPE + kind, stream=stream, **fields)

    def consumer_action(self, account: Account, stream: str, consumer: str, action: str) -> None:
        """Report that a consumer was created or deleted."""
        verb = {"create": "CREATED", "delete": "DELETED"}[action]
        self.publish(
            account,
            f"{ADVISORY_PREFIX}.CONSUMER.{verb}.{stream}.{consumer}",
            event_types.ConsumerActionEvent,
            ADVISORY_TYPE + "consumer_action",
            stream=stream,
            consumer=consumer,
            action=action,
        )

    def consumer_event(
        self, account: Account, stream: str, consumer: str, kind: str, fields: dict[str, object]
    ) -> None:
        """Publish an event that a consumer raised; `kind` is a key of `_CONSUMER_KINDS`."""
        subject, prefix, members = _CONSUMER_KINDS[kind]
        self.publish(
            account,
            f"{subject}.{stream}.{consumer}",
            members,
            prefix + kind,
            stream=stream,
            consumer=consumer,
            **fields,
        )

    def has_auditor(self, account: Account) -> bool:
        """Whether anyone receives the requests of an account; preparing them takes time."""
        return account.has_interest(AUDIT_SUBJECT)

    def api_audit(
        self,
        account: Account,
        *,
        server: str,
        client: EventClient,
        subject: str,
        request: str,
        response: str,
    ) -> None:
        """Report an API request and its response."""
        self.publish(
            account,
            AUDIT_SUBJECT,
            event_types.ApiAudit,
            ADVISORY_TYPE + "api_audit",
            server=server,
            client=client,
            subject=subject,
            request=request,
            response=response,
        )

    def api_limit_reached(self, account: Account, *, server: str, dropped: int) -> None:
        """Report that too many requests were waiting, so that all of them were dropped."""
        self.publish(
            account,
            f"{ADVISORY_PREFIX}.API.LIMIT_REACHED",
            event_types.ApiLimitReached,
            ADVISORY_TYPE + "api_limit_reached",
            server=server,
            dropped=dropped,
        )


def _readable(value: Any) -> Any:
    """Replace bytes that are not UTF-8: subjects and bodies need not be text on the wire."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value
