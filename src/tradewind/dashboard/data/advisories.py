"""Recent events of servers in plain words, newest first.

Owns the subscriptions, which exclude events that occur with every request or message, and the
sentences. Repeated events are counted, not listed, and so are consumers that come and go, so that a
flood of them never displaces others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tradewind.client.errors import ClientError

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg

EVENTS_KEPT_MAX: Final = 100
# How many consumers of a stream that came, or went, are listed one by one.
CONSUMERS_LISTED: Final = 3
EVENT_BYTES_MAX: Final = 64 * 1024
PENDING_MAX: Final = 1000
PREFIX: Final = "$JS.EVENT.ADVISORY"
SUBJECTS: Final = (
    f"{PREFIX}.STREAM.>",
    f"{PREFIX}.CONSUMER.CREATED.>",
    f"{PREFIX}.CONSUMER.DELETED.>",
    f"{PREFIX}.CONSUMER.PAUSE.>",
    f"{PREFIX}.CONSUMER.MAX_DELIVERIES.>",
    f"{PREFIX}.CONSUMER.MSG_TERMINATED.>",
    f"{PREFIX}.CONSUMER.PINNED.>",
    f"{PREFIX}.CONSUMER.UNPINNED.>",
    f"{PREFIX}.CONSUMER.LEADER_ELECTED.>",
    f"{PREFIX}.CONSUMER.QUORUM_LOST.>",
)
# Only a login of the system account receives these.
SYSTEM_SUBJECTS: Final = (
    "$SYS.SERVER.*.CLIENT.AUTH.ERR",
    "$SYS.SERVER.*.LAMEDUCK",
    "$SYS.SERVER.*.SHUTDOWN",
)
Weight = Literal["info", "warning", "bad"]
_ACTIONS: Final = {"create": "was created", "delete": "was deleted", "modify": "was changed"}


@dataclass(frozen=True, slots=True)
class Happening:
    """One event; `count` is the number of equal events in a row."""

    time: str
    text: str
    weight: Weight = "info"
    stream: str = ""
    consumer: str = ""
    count: int = 1
    # Events of the same topic are one line with the newest sentence.
    topic: str = ""


class Advisories:
    """The last events of one login."""

    def __init__(self) -> None:
        self._last: deque[Happening] = deque(maxlen=EVENTS_KEPT_MAX)
        self._listeners: list[Callable[[str], None]] = []

    async def listen(self, connection: Connection) -> None:
        """Subscribe to events; a login without permission receives none."""
        for subject in (*SUBJECTS, *SYSTEM_SUBJECTS):
            with suppress(ClientError):
                await connection.subscribe(
                    subject, callback=self._heard, pending_messages_max=PENDING_MAX
                )

    async def listen_to_servers(self, connection: Connection) -> None:
        """Subscribe to the events of servers, with a login of the system account."""
        for subject in SYSTEM_SUBJECTS:
            await connection.subscribe(
                subject, callback=self._heard, pending_messages_max=PENDING_MAX
            )

    def on_streams_changed(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the kind of each event about a stream."""
        self._listeners.append(listener)

    def newest(self) -> list[Happening]:
        """The last events, newest first."""
        return list(reversed(self._last))

    async def _heard(self, message: Msg) -> None:
        self.add(message.data, message.subject)

    def add(self, data: bytes, subject: str = "") -> None:
        """Add an event; invalid events are skipped."""
        if len(data) > EVENT_BYTES_MAX:
            return
        try:
            document = msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.DecodeError:
            return
        is_system = subject.startswith("$SYS.")
        happening = system_words(subject, document) if is_system else in_words(document)
        if happening is None:
            return
        self._append(self._folded(happening))
        if happening.stream and not happening.consumer:
            for listener in self._listeners:
                listener(happening.stream)

    def _append(self, happening: Happening) -> None:
        """Add an event at the end, together with the equal ones before it."""
        last = self._last[-1] if self._last else None
        if happening.topic:
            for each in self._last:
                if each.topic == happening.topic:
                    happening = replace(happening, count=happening.count + each.count)
                    self._last.remove(each)
                    break
        elif last is not None and replace(last, time="", count=1) == replace(happening, time=""):
            happening = replace(happening, count=last.count + 1)
            self._last.pop()
        self._last.append(happening)

    def _folded(self, happening: Happening) -> Happening:
        """An event that a consumer came or went: programs create many that live for seconds."""
        stream, consumer = happening.stream, happening.consumer
        came, went = _consumer_words(stream, consumer)
        if happening.text not in (came, went):
            return happening
        if happening.text == went:
            for each in self._last:
                if (each.text, each.stream) == (came, stream):
                    self._last.remove(each)
                    text = f"A consumer of {stream} was created and deleted again."
                    return Happening(happening.time, text, stream=stream, topic=f"brief {stream}")
        verb = happening.text.removeprefix(f"Consumer {consumer} of {stream} ")
        alike = [
            each
            for each in self._last
            if each.stream == stream and each.consumer and each.text.endswith(f" {verb}")
        ]
        if len(alike) >= CONSUMERS_LISTED:
            oldest = alike[0]
            self._last.remove(oldest)
            text = f"Another consumer of {stream} {verb}"
            self._append(Happening(oldest.time, text, stream=stream, topic=f"{verb} {stream}"))
        return happening


def _consumer_words(stream: str, consumer: str) -> tuple[str, str]:
    """The sentences about a consumer that was created, and that was deleted."""
    who = f"Consumer {consumer} of {stream}"
    return f"{who} {_ACTIONS['create']}.", f"{who} {_ACTIONS['delete']}."


def system_words(subject: str, document: dict[str, Any]) -> Happening | None:
    """An event of a server itself as a sentence; None for kinds that are not shown."""
    told = document.get("server")
    server = told if isinstance(told, dict) else document
    name, time = _text(server, "name"), _text(document, "timestamp") or _text(server, "time")
    if subject.endswith(".CLIENT.AUTH.ERR"):
        found = document.get("client")
        client: dict[str, Any] = found if isinstance(found, dict) else {}
        who, host = _text(client, "user") or "a client", _text(client, "host")
        reason = _text(document, "reason")
        return Happening(
            time, f"{name} rejected the login of {who} from {host}: {reason}.", "warning"
        )
    if subject.endswith(".LAMEDUCK"):
        return Happening(
            time, f"{name} is disconnecting its clients and will then stop.", "warning"
        )
    if subject.endswith(".SHUTDOWN"):
        return Happening(time, f"{name} was stopped.", "bad")
    return None


def in_words(document: dict[str, Any]) -> Happening | None:
    """An event as a sentence; None for kinds that are not shown."""
    kind = _text(document, "type").removeprefix("io.nats.jetstream.advisory.v1.")
    stream, consumer = _text(document, "stream"), _text(document, "consumer")
    time = _text(document, "timestamp")

    def happening(text: str, weight: Weight = "info") -> Happening:
        return Happening(time, text, weight, stream, consumer)

    who = f"Consumer {consumer} of {stream}"
    if kind == "stream_action":
        action = _text(document, "action")
        return happening(f"Stream {stream} {_ACTIONS.get(action, action)}.")
    if kind == "consumer_action":
        action = _text(document, "action")
        return happening(f"{who} {_ACTIONS.get(action, action)}.")
    if kind == "consumer_pause":
        paused = document.get("paused") is True
        until = f" until {_text(document, 'pause_until')}" if paused else ""
        return happening(f"{who} {'was paused' if paused else 'was resumed'}{until}.")
    if kind == "max_deliver":
        made = happening(
            f"{who} gave up on message {_number(document, 'stream_seq')}: it was delivered "
            f"{_number(document, 'deliveries')} times and never acknowledged.",
            "bad",
        )
        return replace(made, topic=f"{kind} {stream} {consumer}")
    if kind == "terminated":
        reason = _text(document, "reason")
        made = happening(
            f"A client of {who[0].lower()}{who[1:]} rejected message "
            f"{_number(document, 'stream_seq')} permanently{': ' + reason if reason else ''}.",
            "warning",
        )
        return replace(made, topic=f"{kind} {stream} {consumer}")
    return _rest(kind, document, happening)


def _rest(
    kind: str, document: dict[str, Any], happening: Callable[..., Happening]
) -> Happening | None:
    stream, consumer = _text(document, "stream"), _text(document, "consumer")
    who = f"Consumer {consumer} of {stream}" if consumer else f"Stream {stream}"
    if kind == "consumer_group_pinned":
        return happening(f"{who}: group {_text(document, 'group')} is pinned to one client.")
    if kind == "consumer_group_unpinned":
        return happening(f"{who}: group {_text(document, 'group')} is no longer pinned.")
    if kind in ("snapshot_create", "snapshot_complete"):
        return happening(f"A backup of {stream} {'began' if kind.endswith('create') else 'ended'}.")
    if kind in ("restore_create", "restore_complete"):
        return happening(f"Restoring {stream} {'began' if kind.endswith('create') else 'ended'}.")
    if kind in ("stream_leader_elected", "consumer_leader_elected"):
        return happening(f"{who} is led by {_text(document, 'leader')}.")
    if kind in ("stream_quorum_lost", "consumer_quorum_lost"):
        return happening(f"{who} has lost its quorum: nothing is stored until it is back.", "bad")
    return None


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _number(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) else 0
