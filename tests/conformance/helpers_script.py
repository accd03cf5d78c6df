"""Plays a script of requests on a server, and writes down what came of each in a comparable form.

A script is a list of steps. The same script is played on both servers; what differs by nature
(times, generated names, versions) is replaced by a word. Never decides what is right.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from harness import REPLY_SECONDS, RawClient, ServerProcess

QUIET_SECONDS = 0.3
READABLE_SECONDS = 20
SILENCE = "silence"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_ACK_TIME = re.compile(r"(\$JS\.ACK\.\w+\.\w+\.\d+\.\d+\.\d+\.)\d+")
_VOLATILE = frozenset(
    {"ts", "created", "first_ts", "last_ts", "last_active", "time", "pause_remaining", "cluster"}
)
_ODD_IF_EMPTY = frozenset({"first_seq", "num_deleted", "deleted", "last_ts"})
_VIOLATES = "change to limits violates consumers: "
_EVENTS = ("STREAM.>", "CONSUMER.>")


@dataclass(frozen=True)
class Step:
    """One thing to do.

    `kind` is api (a request below $JS.API), publish, direct, reset, ack, pull (take the messages
    of a request that does not wait), wait (a pull request that may be answered much later), listen
    (stay subscribed to the deliver subject of a consumer), collect (everything that came by itself
    since the last time).
    """

    kind: str
    subject: str = ""
    body: Any = None
    header: bytes = b""
    number: int = 0
    is_read: bool = False


@dataclass
class Player:
    """One connection to one server."""

    server: ServerProcess
    raw: RawClient = field(init=False)
    acks: list[str] = field(default_factory=list)
    # What came by itself: messages by consumer, statuses by request, and events.
    came: dict[str, list[Any]] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    _replies: dict[str, list[str]] = field(default_factory=dict)
    _requests: int = 0

    def __post_init__(self) -> None:
        self.raw = RawClient(self.server.port).connect(no_responders=True)
        self.raw.send("SUB answer.* 1\r\nSUB waiting.* waiting\r\n")
        for events in _EVENTS:
            self.raw.send(f"SUB $JS.EVENT.ADVISORY.{events} event\r\n")

    def close(self) -> None:
        self.raw.close()

    def play(self, step: Step) -> Any:
        """Play a step, and return its result."""
        return getattr(self, f"_{step.kind}")(step)

    # ---------------------------------------------------------------- kinds of steps

    def _api(self, step: Step) -> Any:
        answer = self.request(step.subject, step.body)
        if step.subject.startswith("STREAM.UPDATE.") and "error" not in answer:
            # What a change removes may still be counted here; the next question shows that it went.
            del answer["state"]
        if step.subject.startswith("CONSUMER.") and not step.is_read:
            # What is pending is counted a little behind a publish, who listens behind a change.
            answer.pop("num_pending", None)
            answer.pop("push_bound", None)
        return _comparable(answer)

    def _publish(self, step: Step) -> Any:
        self._send(step.subject, step.body, step.header)
        return self.answer(step, self._read_soon())

    def _reset(self, step: Step) -> Any:
        """Send a request that gets no response if there is no such consumer."""
        self._send(f"$JS.API.{step.subject}", _encoded(step.body))
        return self.answer(step, self._read_soon())

    def answer(self, step: Step, message: tuple[str, str, bytes, bytes] | None) -> Any:
        """The result of a step that may remain unanswered."""
        if message is None:
            return None
        if step.kind == "ack":
            return self._delivered(message)
        document = _document(message[3])
        if step.kind == "reset" and document is not None:
            document.pop("num_pending", None)
        return [_lines(message[2]), _comparable(document)]

    def wait_longer(self, step: Step, found: Any) -> Any:
        """The answer to the last step that was too slow; `found` is what was there in time."""
        if step.kind != "pull":
            return self.answer(step, self._read())
        return self._pulled(step, found[:-1])

    def _direct(self, step: Step) -> Any:
        """A direct get: messages up to a status, or one message."""
        self._send(f"$JS.API.{step.subject}", _encoded(step.body))
        found = []
        while True:
            _, _, header, payload = self._read()
            lines = _lines(header)
            found.append([lines, payload.decode()])
            is_one_of_many = any(line.startswith("Nats-Num-Pending: ") for line in lines)
            if not is_one_of_many or lines[0] != "NATS/1.0":
                return found

    def _pull(self, step: Step) -> Any:
        self._send(f"$JS.API.CONSUMER.MSG.NEXT.{step.subject}", _encoded(step.body))
        return self._pulled(step, [])

    def _pulled(self, step: Step, found: list[Any]) -> list[Any]:
        """Messages up to the number that was asked for, a status, or a silence."""
        while len(found) < step.number:
            message = self._read_soon()
            if message is None:
                return [*found, SILENCE]
            found.append(self._delivered(message))
            if message[2].startswith(b"NATS/1.0 "):
                break
        return found

    def _ack(self, step: Step) -> Any:
        if not self.acks:
            return "nothing to acknowledge"
        self._send(self.acks[step.number % len(self.acks)], step.body)
        return self.answer(step, self._read_soon())

    def _wait(self, step: Step) -> Any:
        """Send a pull request with a numbered reply, which is the same on both servers."""
        head = f"$JS.API.CONSUMER.MSG.NEXT.{step.subject} waiting.{step.number}"
        payload = _encoded(step.body)
        self.raw.send(f"PUB {head} {len(payload)}\r\n".encode() + payload + b"\r\n")

    def _listen(self, step: Step) -> Any:
        info = self.request(f"CONSUMER.INFO.{step.subject}")
        config = info.get("config", {})
        if "deliver_subject" in config:
            queue = config.get("deliver_group", "")
            line = f"SUB {config['deliver_subject']} {queue} listen{step.number}\r\n"
            self.raw.send(line.replace("  ", " "))

    def _collect(self, _step: Step) -> Any:
        self.raw.send("PING\r\n")
        while (found := self._read_line())[0] != "PONG":
            self._note(*self._message_of(found))
        return {"came": self.came, "events": sorted(self.events)}

    def collected(self) -> None:
        """Forget what was collected; its messages may be acknowledged from now on."""
        for name in sorted(self._replies):
            self.acks += self._replies[name]
        self.came, self.events, self._replies = {}, [], {}

    def _note(self, sid: str, message: tuple[str, str, bytes, bytes]) -> None:
        """A message that came by itself."""
        subject, reply, header, payload = message
        if sid == "event":
            fields = _comparable(json.loads(payload))
            del fields["id"], fields["timestamp"]
            self.events.append(f"{subject} {json.dumps(fields, sort_keys=True)}")
        elif reply.startswith("$JS.ACK."):
            name = ".".join(reply.split(".")[2:4])
            self._replies.setdefault(name, []).append(reply)
            # Which member of a group gets it is left to chance.
            kind = sid.rstrip("0123456789")
            content = [kind, subject, _without_time(reply), _lines(header), payload.decode()]
            self.came.setdefault(name, []).append(content)
        elif sid == "waiting":
            self.came.setdefault(subject, []).append(_lines(header))

    # ---------------------------------------------------------------- requests

    def request(self, subject: str, body: Any = None) -> Any:
        """The answer of the API as a document."""
        self._send(f"$JS.API.{subject}", _encoded(body))
        # A pull request may still wait, and get its message now.
        while (message := self._read())[0] != f"answer.{self._requests}":
            pass
        return _document(message[3])

    def _send(self, subject: str, payload: bytes, header: bytes = b"") -> None:
        self._requests += 1
        head = f"{subject} answer.{self._requests}".encode()
        if header:
            block = b"NATS/1.0\r\n%s\r\n\r\n" % header
            sizes = b"%d %d" % (len(block), len(block) + len(payload))
            self.raw.send(b"HPUB %s %s\r\n%s%s\r\n" % (head, sizes, block, payload))
        else:
            self.raw.send(b"PUB %s %d\r\n%s\r\n" % (head, len(payload), payload))

    def _delivered(self, message: tuple[str, str, bytes, bytes]) -> Any:
        subject, reply, header, payload = message
        if reply.startswith("$JS.ACK."):
            self.acks.append(reply)
            reply = _without_time(reply)
        is_answer = subject.startswith("answer.")
        return ["answer" if is_answer else subject, reply, _lines(header), payload.decode()]

    def _read_soon(self) -> tuple[str, str, bytes, bytes] | None:
        """The next message if one comes at once."""
        self.raw.socket.settimeout(QUIET_SECONDS)
        try:
            return self._read()
        except TimeoutError:
            return None
        finally:
            self.raw.socket.settimeout(REPLY_SECONDS)

    def _read(self) -> tuple[str, str, bytes, bytes]:
        """(subject, reply, header, payload) of the next message; late answers are passed over."""
        while True:
            sid, message = self._message_of(self._read_line())
            if sid != "1":
                self._note(sid, message)
            elif not message[0].startswith("answer.") or message[0] == f"answer.{self._requests}":
                return message

    def _read_line(self) -> list[str]:
        """The next line that is a message or a PONG, in words."""
        while True:
            words = self.raw.read_line().decode().split(" ")
            if words[0] == "PING":
                self.raw.send("PONG\r\n")
            elif words[0] != "INFO":
                assert words[0] in ("MSG", "HMSG", "PONG"), words
                return words

    def _message_of(self, words: list[str]) -> tuple[str, tuple[str, str, bytes, bytes]]:
        """The subscription, and (subject, reply, header, payload), of a message."""
        has_header = words[0] == "HMSG"
        sizes = [int(word) for word in words[-2 if has_header else -1 :]]
        body = self.raw.read_exact(sizes[-1] + 2)[:-2]
        names = [word for word in words[1 : -len(sizes)] if word]
        reply = names[2] if len(names) == 3 else ""
        cut = sizes[0] if has_header else 0
        return names[1], (names[0], reply, body[:cut], body[cut:])


def play_both(players: list[Player], step: Step) -> list[Any]:
    """The results of a step on both servers; a question is repeated while the results differ.

    The official server does some of its work after it has answered. A server that is silent where
    the other has answered gets more time.
    """
    answers = [player.play(step) for player in players]
    end = time.monotonic() + READABLE_SECONDS
    while not step.is_read and answers[0] != answers[1] and time.monotonic() < end:
        silent = [index for index, found in enumerate(answers) if _is_silent(found)]
        for index in silent:
            answers[index] = players[index].wait_longer(step, answers[index])
        if not silent:
            break
    while step.is_read and answers[0] != answers[1] and time.monotonic() < end:
        time.sleep(0.02)
        answers = [player.play(step) for player in players]
    if step.kind == "collect":
        for player in players:
            player.collected()
    return answers


def _is_silent(found: Any) -> bool:
    """Whether an answer did not come, or not all of it."""
    return found is None or (isinstance(found, list) and found[-1] == SILENCE)


def _without_time(reply: str) -> str:
    """The subject of an ack without the time of its message."""
    tokens = reply.split(".")
    return ".".join([*tokens[:7], "T", *tokens[8:]])


def _encoded(body: Any) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _document(payload: bytes) -> Any:
    return json.loads(payload) if payload else None


def _lines(header: bytes) -> list[str]:
    text = _ACK_TIME.sub(r"\1TIME", _TIME.sub("TIME", header.decode()))
    return [line for line in text.split("\r\n") if line]


def _comparable(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_VIOLATES):
        # The official server names them in any order.
        return _VIOLATES + ", ".join(sorted(value.removeprefix(_VIOLATES).split(", ")))
    if isinstance(value, dict):
        if value.get("messages") == 0 and "last_ts" in value:
            # The official server counts a purge of a stream that was never used in its own ways,
            # and says when a message was last skipped.
            value = {key: value[key] for key in value if key not in _ODD_IF_EMPTY}
        if value.get("config", {}).get("ack_policy") == "none":
            # Where limits became interest, the official server says when it acknowledged itself.
            value["ack_floor"].pop("last_active", None)
        if value.get("delivered", {}).get("consumer_seq") == 0:
            # Before the first delivery the official server may count what it has passed over.
            value["delivered"].pop("stream_seq")
        return {
            key: _shape(member) if key in _VOLATILE else _comparable(member)
            for key, member in value.items()
            if key != "_nats.ver"
        }
    if isinstance(value, list):
        return [_comparable(member) for member in value]
    return value


def _shape(value: Any) -> str:
    """The form of a value that differs by nature: whether it is present, and set."""
    if isinstance(value, str):
        return "no time" if value.startswith("0001-") else "time"
    return type(value).__name__
