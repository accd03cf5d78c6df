"""The streams and consumers of a server that is killed, and the clients that use them.

A `Lane` is what was sent to one stream and what was promised of it. A `Reader` is a client of one
consumer, with what it was given and what it has acknowledged.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from harness import RawClient
from tradewind.store.format.layout import record_bytes

SECOND: Final = 1_000_000_000
# Blocks of 32000 bytes and of a quarter of the limit: some are sealed in every life.
SMALL_BLOCKS: Final = {"max_bytes": 127_900}
BLOCKS: Final = {"max_bytes": 600_000}
KEYS: Final = 7
NUMBER_DIGITS: Final = 8
Content = tuple[str, bytes, bytes]


class WireClosedError(Exception):
    """The server has closed the connection, or is gone."""


class Wire(RawClient):
    """A connection that answers PING, asks the API, and tells when it ends."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.connect(no_responders=True)
        self.inbox = f"inbox{self.info['client_id']}"
        self.send(f"SUB {self.inbox}.answer.* 1\r\nSUB {self.inbox}.given.* 2\r\n")
        self._asked = 0

    def answer_to(self, number: int) -> str:
        """Where the server shall answer."""
        return f"{self.inbox}.answer.{number}"

    def read_line(self) -> bytes:
        """A line that a kill has cut off was not said."""
        while b"\r\n" not in self.buffer:
            if not self._fill():
                raise WireClosedError
        return super().read_line()

    def next_message(self) -> tuple[str, str, bytes, bytes]:
        """Subject, reply subject, header and payload of the next message."""
        while True:
            line = self.read_line()
            words = line.decode().split(" ")
            if words[0] == "PING":
                self.send("PONG\r\n")
            elif words[0] in ("MSG", "HMSG"):
                break
            elif words[0] not in ("PONG", "INFO"):
                raise AssertionError(f"unexpected {line!r}")
        sizes = 2 if words[0] == "HMSG" else 1
        header_size = int(words[-2]) if sizes == 2 else 0
        reply = words[3] if len(words) - sizes == 4 else ""
        body = self.read_exact(int(words[-1]) + 2)
        if len(body) != int(words[-1]) + 2:
            raise WireClosedError
        return words[1], reply, body[:header_size], body[header_size:-2]

    def api_all(self, requests: list[tuple[str, Any]]) -> list[dict[str, Any]]:
        """Ask all of it at once; the answers in the order of the requests."""
        first = self._asked
        for subject, request in requests:
            data = json.dumps(request).encode()
            head = f"PUB $JS.API.{subject} {self.answer_to(self._asked)} {len(data)}\r\n"
            self.send(head.encode() + data + b"\r\n")
            self._asked += 1
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(requests):
            subject, _, _, payload = self.next_message()
            answers[int(subject.split(".")[2])] = json.loads(payload)
        return [answers[number] for number in range(first, self._asked)]

    def api(self, subject: str, request: Any = None) -> dict[str, Any]:
        (answer,) = self.api_all([(subject, {} if request is None else request)])
        assert "error" not in answer, f"{subject}: {answer['error']}"
        return answer


@dataclass(frozen=True)
class Plan:
    """One of the streams."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    has_ids: bool = False

    @property
    def config(self) -> dict[str, Any]:
        return {"name": self.name, "subjects": [f"{self.name}.*"], **self.settings}

    @property
    def retention(self) -> str:
        return str(self.settings.get("retention", "limits"))

    def content(self, number: int) -> Content:
        """Subject, header and payload of a message."""
        random = Random(f"{self.name} {number}")
        header = b""
        if self.has_ids:
            header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
        elif random.random() < 0.3:
            header = b"NATS/1.0\r\nN: %d\r\n\r\n" % number
        size = random.choice((0, 10, 200, 3000))
        payload = b"%0*d " % (NUMBER_DIGITS, number) + random.randbytes(size)
        return f"{self.name}.{random.randrange(KEYS)}", header, payload


PLANS: Final = (
    Plan("PLAIN", dict(BLOCKS)),
    Plan("SHORT", {"max_msgs": 50, **SMALL_BLOCKS}),
    Plan("LATEST", {"max_msgs_per_subject": 2, **SMALL_BLOCKS}),
    Plan("SQUEEZED", {"compression": "s2", **SMALL_BLOCKS}),
    Plan("ONCE", {"duplicate_window": 3600 * SECOND, **BLOCKS}, has_ids=True),
    Plan("WORK", {"retention": "workqueue", **SMALL_BLOCKS}),
    Plan("FAN", {"retention": "interest", **SMALL_BLOCKS}),
)
SETTINGS: Final = {"ack_wait": SECOND, "max_ack_pending": 500}
READERS: Final = (
    ("PLAIN", "reader", SETTINGS),
    ("WORK", "worker", SETTINGS),
    ("FAN", "left", SETTINGS),
    ("FAN", "right", SETTINGS),
)


class Lane:
    """The messages of one stream, in all lives of the server.

    `acked` are the sequences that were promised, `known` those that were ever seen, both with the
    number of their message.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sent = 0
        self.acked: dict[int, int] = {}
        self.known: dict[int, int] = {}
        self.last_seq = 0
        self._unanswered: deque[int] = deque()

    def full_below(self, there: dict[int, int]) -> int:
        """Messages at or below this sequence may have gone because the stream was full."""
        room = int(self.plan.settings["max_bytes"])
        for seq, number in sorted({**self.known, **there}.items(), reverse=True):
            room -= record_bytes(*(len(part) for part in self.plan.content(number)))
            if room < 0:
                return seq
        return 0

    @property
    def waiting(self) -> int:
        """How many answers are to come."""
        return len(self._unanswered)

    def send(self, wire: Wire, count: int) -> None:
        """The next messages, in one go."""
        parts = []
        for number in range(self.sent, self.sent + count):
            parts.append(self._publish_bytes(wire, number))
            self._unanswered.append(number)
        self.sent += count
        wire.send(b"".join(parts))

    def _publish_bytes(self, wire: Wire, number: int) -> bytes:
        subject, header, payload = self.plan.content(number)
        size = len(header) + len(payload)
        verb, sizes = ("HPUB", f"{len(header)} {size}") if header else ("PUB", str(size))
        head = f"{verb} {subject} {wire.answer_to(number)} {sizes}\r\n"
        return head.encode() + header + payload + b"\r\n"

    def take_answer(self, wire: Wire) -> None:
        """The next acknowledgement must be that of the oldest message, under a new sequence."""
        subject, _, _, payload = wire.next_message()
        answer, number = json.loads(payload), int(subject.split(".")[2])
        assert "error" not in answer, f"{self.plan.name}: {answer['error']}"
        assert number == self._unanswered.popleft(), f"{self.plan.name}: answers out of order"
        assert answer["stream"] == self.plan.name, answer
        assert answer["seq"] > self.last_seq, f"{self.plan.name}: {answer} after {self.last_seq}"
        self._note(answer["seq"], number)

    def _note(self, seq: int, number: int) -> None:
        assert self.known.setdefault(seq, number) == number, f"{self.plan.name}: {seq} given twice"
        self.acked[seq] = number
        self.last_seq = max(self.last_seq, seq)

    def number_of(self, content: Content) -> int | None:
        """The number of a message, compared byte by byte; None if it was never sent."""
        digits = content[2][:NUMBER_DIGITS]
        if not digits.isdigit() or int(digits) >= self.sent:
            return None
        return int(digits) if self.plan.content(int(digits)) == content else None

    def may_be_gone(self, seq: int, last_seq: int, there: dict[int, int], used: set[int]) -> bool:
        """Whether a limit or a consumer has removed this message."""
        if limit := self.plan.settings.get("max_msgs"):
            return bool(seq <= last_seq - limit)
        if limit := self.plan.settings.get("max_msgs_per_subject"):
            subject = self.plan.content(self.acked[seq])[0]
            newer = [n for s, n in there.items() if s > seq and self.plan.content(n)[0] == subject]
            return len(newer) >= limit
        return self.plan.retention != "limits" and seq in used

    def settle(self, there: dict[int, int], last_seq: int) -> None:
        """Record the messages of a started server, which must stay, promised or not."""
        for seq, number in there.items():
            self._note(seq, number)
        self.last_seq = last_seq

    def resend(self, wire: Wire, count: int) -> list[str]:
        """Send the last messages again, if they have ids: each must be known, or be stored now."""
        doubtful = list(self._unanswered)
        self._unanswered.clear()
        if not self.plan.has_ids:
            return []
        seqs = {number: seq for seq, number in self.acked.items()}
        problems = []
        for number in [*list(seqs)[-count:], *(n for n in doubtful if n not in seqs)]:
            wire.send(self._publish_bytes(wire, number))
            answer = json.loads(wire.next_message()[3])
            if number in seqs:
                if answer.get("duplicate") is not True or answer["seq"] != seqs[number]:
                    problems.append(f"{self.plan.name}: id {number} is forgotten: {answer}")
            elif "duplicate" in answer or answer["seq"] <= self.last_seq:
                problems.append(f"{self.plan.name}: {number} was never stored, but: {answer}")
            else:
                self._note(answer["seq"], number)
        return problems


class Reader:
    """Takes messages of one consumer and acknowledges them in several ways.

    `used` are the sequences for which an acknowledgement was sent, `confirmed` those where the
    server has answered it: they never come again, whenever it is killed.
    """

    def __init__(self, stream: str, name: str, _settings: dict[str, Any]) -> None:
        self.key = (stream, name)
        self.used: set[int] = set()
        self.confirmed: set[int] = set()
        self.given = 0

    def run(self, wire: Wire, random: Random, promised: Callable[[], None]) -> None:
        """Until the connection breaks."""
        while True:
            self._ask(wire, random.choice((1, 10)))
            self._take_batch(wire, random, promised)

    def _ask(self, wire: Wire, batch: int) -> None:
        self.given += 1
        body = json.dumps({"batch": batch, "expires": SECOND // 5}).encode()
        stream, name = self.key
        reply = f"{wire.inbox}.given.{self.given}"
        head = f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{name} {reply} {len(body)}\r\n"
        wire.send(head.encode() + body + b"\r\n")
        self._left = batch

    def _take_batch(self, wire: Wire, random: Random, promised: Callable[[], None]) -> None:
        while self._left:
            subject, reply, header, _ = wire.next_message()
            if ".answer." in subject:
                self.confirmed.add(int(subject.split(".")[2]))
                promised()
                continue
            if self._is_end(header, reply):
                return
            self._left -= 1
            seq = self._taken(reply)
            match random.randrange(8):
                case 0:
                    pass  # never answered: it must come again
                case 1:
                    wire.send(f"PUB {reply} 4\r\n-NAK\r\n")
                case 2 | 3 | 4:
                    self.used.add(seq)
                    wire.send(f"PUB {reply} 4\r\n+ACK\r\n")
                case _:
                    self.used.add(seq)
                    wire.send(f"PUB {reply} {wire.answer_to(seq)} 4\r\n+ACK\r\n")

    def _is_end(self, header: bytes, reply: str) -> bool:
        """A status without a message: the request is over."""
        if reply:
            return False
        assert header.startswith((b"NATS/1.0 404", b"NATS/1.0 408")), header
        return True

    def _taken(self, reply: str) -> int:
        seq = int(reply.split(".")[5])
        assert seq not in self.confirmed, f"{self.key}: {seq} was acknowledged before"
        return seq

    def drain(self, wire: Wire, wanted: Iterable[int], batches_max: float) -> list[int]:
        """Acknowledge all that comes until nothing is left; gives what came.

        Some may come that is not `wanted`: the server has not got the acknowledgement, and gives it
        again when `ack_wait` is over.
        """
        left, taken, idle = set(wanted), [], 0
        while idle < batches_max * 5 and (left or idle < 1 or self._is_awaited(wire)):
            self._ask(wire, 100)
            came = 0
            while self._left:
                _, reply, header, _ = wire.next_message()
                if self._is_end(header, reply):
                    break
                self._left -= 1
                came += 1
                taken.append(self._taken(reply))
                left.discard(taken[-1])
                self.used.add(taken[-1])
                wire.send(f"PUB {reply} 4\r\n+ACK\r\n")
            idle = 0 if came else idle + 1
        wire.ping()
        return taken

    def _is_awaited(self, wire: Wire) -> bool:
        """Whether the server waits for an acknowledgement."""
        stream, name = self.key
        return bool(wire.api(f"CONSUMER.INFO.{stream}.{name}")["num_ack_pending"])
