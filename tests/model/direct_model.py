"""The answer to a direct get, computed in the simplest way from a list of all messages.

A message that is not visible yet is in an answer only if no visible one will do; that part of the
answer waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.api.request_types import MsgGetRequest
from tradewind.api.times import format_time, parse_time
from tradewind.subjects import collide, is_valid_subject

Reply = tuple[bytes, bytes]
RESULTS_MAX = 1024


@dataclass
class Stored:
    """A message of the model."""

    seq: int
    time_ns: int
    subject: str
    header: bytes
    payload: bytes


@dataclass
class Model:
    """A stream: its live messages in order, and how far readers may see."""

    name: str
    messages: list[Stored]
    visible: int
    last_seq: int
    is_file: bool
    bytes_max: int = 64 * 1024 * 1024
    waiting: int = 0  # so many of the last answers wait until their messages are visible

    def answers(self, request: MsgGetRequest | None, subject: str | None) -> list[Reply]:
        """All replies; `request` is None for a body that is not a request."""
        self.waiting = 0
        if request is None:
            return [status("408 Malformed Request")]
        if subject is not None:
            allowed = MsgGetRequest(no_hdr=request.no_hdr, max_bytes=request.max_bytes)
            if request != allowed:
                return [status("408 Bad Request")]
            return self._one(self._last(subject), request)
        if not (
            request.seq
            or request.last_by_subj
            or request.next_by_subj
            or request.multi_last
            or request.start_time is not None
        ):
            return [status("408 Empty Request")]
        if self._is_contradictory(request):
            return [status("408 Bad Request")]
        if request.multi_last:
            return self._many(request)
        if request.batch:
            return self._batch(request)
        if request.last_by_subj:
            return self._one(self._last(request.last_by_subj), request)
        if request.next_by_subj or request.start_time is not None:
            return self._one(self._following(request)[:1], request)
        return self._one([m for m in self.messages if m.seq == request.seq], request)

    @staticmethod
    def _is_contradictory(request: MsgGetRequest) -> bool:
        ways = {
            "seq": bool(request.seq),
            "last": bool(request.last_by_subj),
            "next": bool(request.next_by_subj),
            "time": request.start_time is not None,
            "batch": request.batch > 0,
            "many": bool(request.multi_last),
            "up_to": bool(request.up_to_seq),
            "up_to_time": request.up_to_time is not None,
        }
        pairs = "seq+last seq+time time+last last+next last+batch last+many next+many"
        return any(
            ways[pair.split("+")[0]] and ways[pair.split("+")[1]]
            for pair in [*pairs.split(), "up_to+up_to_time"]
        )

    def _seen(self) -> list[Stored]:
        return [message for message in self.messages if message.seq <= self.visible]

    def _last(self, wanted: str) -> list[Stored]:
        """The newest message of a subject, a visible one if there is one."""
        seen = [m for m in self._seen() if matches(m.subject, wanted)]
        return (seen or [m for m in self.messages if matches(m.subject, wanted)])[-1:]

    def _following(self, request: MsgGetRequest) -> list[Stored]:
        """The messages from the start of a request on."""
        found = self.messages
        if request.start_time is not None:
            start_ns = parse_time(request.start_time)
            # The first at or after the time, and all that follow it.
            first = next((m.seq for m in self.messages if m.time_ns >= start_ns), 2**64)
            found = [message for message in found if message.seq >= first]
        wanted = request.next_by_subj or ">"
        return [m for m in found if m.seq >= request.seq and matches(m.subject, wanted)]

    def _one(self, found: list[Stored], request: MsgGetRequest) -> list[Reply]:
        if not found:
            return [status("404 Message Not Found")]
        self.waiting = int(found[0].seq > self.visible)
        return [self._reply(found[0], b"", no_header=request.no_hdr)]

    def _batch(self, request: MsgGetRequest) -> list[Reply]:
        left = self._following(request)
        pending, last_seq, size = len(left), 0, 0
        replies: list[Reply] = []
        if not left and request.batch > 0:
            return [status("404 Message Not Found")]
        seen = [message for message in left if message.seq <= self.visible]
        for message in (seen or left[:1])[: max(request.batch, 0)]:
            if not request.no_hdr:
                pending -= 1
            position = f"Nats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last_seq}\r\n"
            replies.append(self._reply(message, position.encode(), no_header=request.no_hdr))
            last_seq = message.seq
            size += size_of(message)
            if size >= (request.max_bytes or self.bytes_max):
                break
        self.waiting = 2 if last_seq > self.visible else 0
        return [*replies, end(pending, last_seq)]

    def _many(self, request: MsgGetRequest) -> list[Reply]:
        up_to = request.up_to_seq or self.last_seq
        if request.up_to_time is not None:
            limit_ns = parse_time(request.up_to_time)
            later = next((m.seq for m in self.messages if m.time_ns >= limit_ns), self.last_seq + 1)
            up_to = min(later - 1, self.last_seq)
        first_seq = self.messages[0].seq if self.messages else self.last_seq + 1
        if not self.messages or up_to < first_seq or (up_to > self.last_seq and self.is_file):
            return [status("404 No Results")]
        last: dict[str, Stored] = {}
        for message in self.messages:
            is_better = message.seq <= self.visible or (
                message.subject not in last or last[message.subject].seq > self.visible
            )
            is_wanted = any(matches(message.subject, p) for p in request.multi_last)
            if is_better and is_wanted and message.seq <= up_to:
                last[message.subject] = message
        found = sorted(last.values(), key=lambda message: message.seq)
        if not found:
            return [status("404 No Results")]
        if len(found) > RESULTS_MAX:
            return [status("413 Too Many Results")]
        if not request.up_to_seq and request.up_to_time is None:
            up_to = max(self.visible, found[-1].seq)
        found = [message for message in found if message.seq >= request.seq]
        pending, last_seq, size = len(found), 0, 0
        replies: list[Reply] = []
        for message in found[: request.batch] if request.batch > 0 else found:
            pending -= 1
            position = f"Nats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last_seq}\r\n"
            replies.append(self._reply(message, position.encode()))
            last_seq = message.seq
            self.waiting += last_seq > self.visible
            size += size_of(message)
            if size >= (request.max_bytes or self.bytes_max):
                break
        self.waiting += self.waiting > 0
        return [*replies, end(pending, last_seq, f"Nats-UpTo-Sequence: {up_to}\r\n")]

    def _reply(self, message: Stored, more: bytes, *, no_header: bool = False) -> Reply:
        if no_header:
            return b"", message.payload
        own = message.header[:-2] if message.header else b"NATS/1.0\r\n"
        fields = (
            f"Nats-Stream: {self.name}\r\nNats-Subject: {message.subject}\r\n"
            f"Nats-Sequence: {message.seq}\r\nNats-Time-Stamp: {format_time(message.time_ns)}\r\n"
        )
        return own + fields.encode() + more + b"\r\n", message.payload


def matches(subject: str, pattern: str) -> bool:
    """Whether a literal subject matches a pattern, which may be nonsense."""
    return is_valid_subject(pattern) and collide(subject, pattern)


def status(line: str) -> Reply:
    """A reply without a message."""
    return f"NATS/1.0 {line}\r\n\r\n".encode(), b""


def end(pending: int, last_seq: int, more: str = "") -> Reply:
    """The end of a batch."""
    return status(
        f"204 EOB\r\nNats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last_seq}\r\n{more}"[:-2]
    )


def size_of(message: Stored) -> int:
    """The size that counts for `max_bytes`."""
    return len(message.subject) + len(message.header) + len(message.payload)
