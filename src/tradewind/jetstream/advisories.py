"""Events about streams and consumers: who did what, and what went wrong.

Owns the subjects, types and field order of nats-server's advisories and metrics. An event that
nobody listens to is not even encoded. It never decides that something has happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tradewind.api.base import encode
from tradewind.api.stream_types import StreamState
from tradewind.api.times import format_time
from tradewind.broker.accounts import Account
from tradewind.jetstream.names import Names

ADVISORY_PREFIX: Final = "$JS.EVENT.ADVISORY"
METRIC_PREFIX: Final = "$JS.EVENT.METRIC"
ADVISORY_TYPE: Final = "io.nats.jetstream.advisory.v1."
METRIC_TYPE: Final = "io.nats.jetstream.metric.v1."

# kind of a consumer's event -> subject below the prefix, type
_CONSUMER_KINDS: Final = {
    "consumer_pause": (f"{ADVISORY_PREFIX}.CONSUMER.PAUSE", ADVISORY_TYPE + "consumer_pause"),
    "consumer_group_pinned": (
        f"{ADVISORY_PREFIX}.CONSUMER.PINNED",
        ADVISORY_TYPE + "consumer_group_pinned",
    ),
    "consumer_group_unpinned": (
        f"{ADVISORY_PREFIX}.CONSUMER.UNPINNED",
        ADVISORY_TYPE + "consumer_group_unpinned",
    ),
    "max_deliver": (f"{ADVISORY_PREFIX}.CONSUMER.MAX_DELIVERIES", ADVISORY_TYPE + "max_deliver"),
    "nak": (f"{ADVISORY_PREFIX}.CONSUMER.MSG_NAKED", ADVISORY_TYPE + "nak"),
    "terminated": (f"{ADVISORY_PREFIX}.CONSUMER.MSG_TERMINATED", ADVISORY_TYPE + "terminated"),
    "consumer_ack": (f"{METRIC_PREFIX}.CONSUMER.ACK", METRIC_TYPE + "consumer_ack"),
}


class Advisories:
    """Publishes events; `now_ns` is the wall clock."""

    def __init__(self, names: Names, now_ns: Callable[[], int], domain: str = "") -> None:
        self._names = names
        self._now_ns = now_ns
        self._domain = domain

    def publish(self, account: Account, subject: str, kind: str, fields: dict[str, object]) -> None:
        """An event with these fields, if anybody wants it."""
        if not account.has_interest(subject):
            return
        event = {
            "type": kind,
            "id": self._names.event_id(),
            "timestamp": format_time(self._now_ns()),
            **fields,
        }
        if self._domain:
            event["domain"] = self._domain
        account.publish(subject, encode_event(event))

    def stream_action(self, account: Account, stream: str, action: str) -> None:
        """A stream was created, modified or deleted."""
        verb = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}[action]
        self.publish(
            account,
            f"{ADVISORY_PREFIX}.STREAM.{verb}.{stream}",
            ADVISORY_TYPE + "stream_action",
            {"stream": stream, "action": action},
        )

    def snapshot_create(
        self, account: Account, stream: str, state: StreamState, client: dict[str, Any]
    ) -> None:
        """A backup has begun."""
        fields = {"stream": stream, "state": state, "client": client}
        self._backup(account, "snapshot_create", fields)

    def snapshot_complete(
        self, account: Account, stream: str, start_ns: int, client: dict[str, Any], error: str
    ) -> None:
        """A backup has ended, well or with an error."""
        fields = {"stream": stream, **self._from_to(start_ns), "client": client}
        if error:
            fields["error"] = error
        self._backup(account, "snapshot_complete", fields)

    def restore_create(self, account: Account, stream: str, client: dict[str, Any]) -> None:
        """A backup is being restored."""
        self._backup(account, "restore_create", {"stream": stream, "client": client})

    def restore_complete(
        self, account: Account, stream: str, start_ns: int, size: int, client: dict[str, Any]
    ) -> None:
        """That has ended, well or not."""
        fields = {"stream": stream, **self._from_to(start_ns), "bytes": size, "client": client}
        self._backup(account, "restore_complete", fields)

    def _from_to(self, start_ns: int) -> dict[str, Any]:
        return {"start": format_time(start_ns), "end": format_time(self._now_ns())}

    def _backup(self, account: Account, kind: str, fields: dict[str, Any]) -> None:
        subject = f"{ADVISORY_PREFIX}.STREAM.{kind.upper()}.{fields['stream']}"
        self.publish(account, subject, ADVISORY_TYPE + kind, fields)

    def consumer_action(self, account: Account, stream: str, consumer: str, action: str) -> None:
        """A consumer was created or deleted."""
        verb = {"create": "CREATED", "delete": "DELETED"}[action]
        self.publish(
            account,
            f"{ADVISORY_PREFIX}.CONSUMER.{verb}.{stream}.{consumer}",
            ADVISORY_TYPE + "consumer_action",
            {"stream": stream, "consumer": consumer, "action": action},
        )

    def consumer_event(
        self, account: Account, stream: str, consumer: str, kind: str, fields: dict[str, object]
    ) -> None:
        """Something that a consumer tells of itself: a key of the table above."""
        subject, event_type = _CONSUMER_KINDS[kind]
        self.publish(
            account,
            f"{subject}.{stream}.{consumer}",
            event_type,
            fields,
        )

    def api_audit(
        self,
        account: Account,
        *,
        server: str,
        client: dict[str, Any],
        subject: str,
        request: str,
        response: str,
    ) -> None:
        """A request of the API was answered."""
        fields: dict[str, Any] = {"server": server, "client": client, "subject": subject}
        if request:
            fields["request"] = request
        fields["response"] = response
        self.publish(account, f"{ADVISORY_PREFIX}.API", ADVISORY_TYPE + "api_audit", fields)

    def api_limit_reached(self, account: Account, *, server: str, dropped: int) -> None:
        """Too many requests were waiting, and all of them were dropped."""
        self.publish(
            account,
            f"{ADVISORY_PREFIX}.API.LIMIT_REACHED",
            ADVISORY_TYPE + "api_limit_reached",
            {"server": server, "dropped": dropped},
        )


def encode_event(event: dict[str, Any]) -> bytes:
    """Subjects and bodies are bytes on the wire and need not be text."""
    return encode({key: _readable(value) for key, value in event.items()})


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items()}
    return value
