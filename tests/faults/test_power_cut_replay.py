"""Power failures replayed from the system calls that a real server has made.

A server works under strace. Its calls are done again on a simulated disk that keeps no more than
POSIX promises, and after every answer, and at other moments by chance, the power fails there. A
server that starts on what is left must have all that was answered before, and nothing twice.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

import syscall_trace
from harness import RawClient, ServerProcess
from thoroughness import some
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

REFUSAL = syscall_trace.refusal()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "-")]
ROUNDS = some(1, 3)
# So many moments besides the answers, each with so many disks that it may leave.
CUTS = some(150, 1500)
STEPS = ("pwrite64", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "openat", "mkdir")
PROBLEMS_MAX = 100
ANSWER = re.compile(rb"MSG R\.(\d+) ")


@dataclass
class Deed:
    """A request and what it does: the texts of messages that it adds and those that it removes."""

    number: int
    group: int  # those of a group are sent together, when all before them are answered
    what: str
    stream: str
    adds: tuple[tuple[str, str], ...] = ()  # stream and text
    removes: tuple[str, ...] = ()
    says: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)


class Work:
    """One client that does many kinds of things; `deeds` is all that it has asked for."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(port).connect()
        self.client.send("SUB R.> 1\r\nSUB D.> 2\r\n")
        self.deeds: list[Deed] = []
        self._group = 0
        self._waiting: list[Deed] = []
        self._texts = 0

    def text(self) -> str:
        """A payload that no other message has."""
        self._texts += 1
        return f"text-{self._texts}-" + "x" * (self._texts * 37 % 300)

    def send(self, subject: str, body: Any, what: str, stream: str, **does: Any) -> Deed:
        """Ask, and do not wait."""
        payload = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        deed = Deed(len(self.deeds), self._group, what, stream, **does)
        self.deeds.append(deed)
        self._waiting.append(deed)
        line = f"PUB {subject} R.{deed.number} {len(payload)}\r\n"
        self.client.send(line.encode() + payload + b"\r\n")
        return deed

    def wait(self) -> None:
        """Until all is answered, and well."""
        while any(not deed.answer for deed in self._waiting):
            line, _, payload = self.client.read_message()
            deed = self.deeds[int(line.split()[1].removeprefix("R."))]
            # An ack is answered by an empty message.
            deed.answer = json.loads(payload) if payload else {"empty": True}
            assert "error" not in deed.answer, (deed, deed.answer)
        self._waiting = []
        self._group += 1

    def do(self, subject: str, body: Any, what: str, stream: str, **does: Any) -> Deed:
        """Ask and wait."""
        deed = self.send(subject, body, what, stream, **does)
        self.wait()
        return deed

    def publish(self, stream: str, subject: str, removes: tuple[str, ...] = ()) -> str:
        """A message, without waiting; returns its text."""
        text = self.text()
        self.send(subject, text, "publish", stream, adds=((stream, text),), removes=removes)
        return text

    def pull(self, stream: str, consumer: str, count: int) -> list[tuple[str, str]]:
        """The ack subjects and texts of the next messages."""
        request = json.dumps({"batch": count, "expires": 10**10})
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self.client.send(f"PUB {subject} D.1 {len(request)}\r\n{request}\r\n")
        found = []
        for _ in range(count):
            line, _, payload = self.client.read_message()
            found.append((line.split()[3], payload.decode()))
        return found

    def create(self, stream: str, subject: str, **config: Any) -> None:
        config = {"name": stream, "subjects": [subject], **config}
        self.do(f"$JS.API.STREAM.CREATE.{stream}", config, "create", stream)

    def consumer(self, stream: str) -> None:
        config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 10**12}
        body = {"stream_name": stream, "config": config}
        self.do(f"$JS.API.CONSUMER.CREATE.{stream}.c", body, "consumer", stream)

    def begin(self) -> None:
        self.create("A", "a.>")
        self.create("KV_B", "$KV.B.>", max_msgs_per_subject=1, allow_direct=True)
        self.create("W", "w.>", retention="workqueue")
        self.create("T", "t.>")
        for stream in ("A", "W"):
            self.consumer(stream)

    def round(self, number: int) -> None:
        """Some of everything."""
        api = "$JS.API.STREAM"
        texts = [self.publish("A", f"a.{index % 3}") for index in range(9)]
        self.wait()
        for _ in range(3):
            for key in ("k", "l"):
                old = [d for d in self.deeds if d.says.get("key") == key][-1:]
                removes = tuple(text for deed in old for _, text in deed.adds)
                self.publish("KV_B", f"$KV.B.{key}", removes)
                self.deeds[-1].says["key"] = key
            self.wait()
        for _ in range(4):
            self.publish("W", "w.job")
        self.wait()
        for subject, text in self.pull("W", "c", 3):
            self.do(subject, "+ACK", "ack", "W", removes=(text,))
        for subject, _ in self.pull("A", "c", 4):
            seq = int(subject.split(".")[-4])
            self.do(subject, "+ACK", "ack", "A", says={"acked": seq})
        seq = self.deeds[[d.adds for d in self.deeds].index((("A", texts[4]),))].answer["seq"]
        self.do(f"{api}.MSG.DELETE.A", {"seq": seq}, "delete", "A", removes=(texts[4],))
        gone = tuple(text for index, text in enumerate(texts) if index % 3 == 2)
        self.do(f"{api}.PURGE.A", {"filter": "a.2"}, "purge", "A", removes=gone)
        config = {"name": "A", "subjects": ["a.>"], "description": f"round {number}"}
        self.do(f"{api}.UPDATE.A", config, "update", "A", says={"round": number})
        self.transaction()
        self.create("X", "x.>")
        left = tuple(self.publish("X", "x.y") for _ in range(3))
        self.wait()
        self.do(f"{api}.DELETE.X", "", "remove", "X", removes=left)
        self.restore()

    def restore(self) -> None:
        """A stream that comes back from its own backup."""
        api = "$JS.API.STREAM"
        self.create("Y", "y.>")
        for _ in range(3):
            self.do("y.z", "restored", "publish", "Y")
        request = json.dumps({"deliver_subject": "D.backup"})
        self.client.send(f"PUB {api}.SNAPSHOT.Y D.2 {len(request)}\r\n{request}\r\n")
        backup = json.loads(self.client.read_message()[2])
        chunks = []
        while True:
            line, _, chunk = self.client.read_message()
            if not chunk:
                break
            chunks.append(chunk)
            if len(line.split()) == 5:
                self.client.send(f"PUB {line.split()[3]} 0\r\n\r\n")
        self.do(f"{api}.DELETE.Y", "", "remove", "Y")
        content = {"config": backup["config"], "state": backup["state"]}
        place = self.do(f"{api}.RESTORE.Y", content, "upload", "Y").answer["deliver_subject"]
        for chunk in chunks:
            self.client.send(f"PUB {place} D.3 {len(chunk)}\r\n".encode() + chunk + b"\r\n")
            self.client.read_message()
        self.do(place, "", "restore", "Y", says={"restored": 3})
        self.do(f"{api}.DELETE.Y", "", "remove", "Y")

    def transaction(self) -> None:
        """Two messages and an ack, together."""
        [(subject, done)] = self.pull("W", "c", 1)
        first, second = self.text(), self.text()
        body = {
            "publishes": [
                {"subject": name, "payload": base64.b64encode(text.encode()).decode()}
                for name, text in (("a.0", first), ("t.0", second))
            ],
            "acks": [subject],
        }
        adds = (("A", first), ("T", second))
        self.do("$TW.API.COMMIT", body, "transaction", "", adds=adds, removes=(done,))


class Verdict:
    """What a server that starts on a disk says of what was answered before."""

    def __init__(self, deeds: list[Deed], disk: SimulatedDisk, answered: set[int]) -> None:
        self._connection = InProcessServer(disk=disk).connect(b'CONNECT {"verbose":false}\r\n')
        self._connection.send(b"SUB inbox 1\r\n")
        self._answered = answered
        open_group = min((d.group for d in deeds if d.number not in answered), default=1 << 60)
        self._begun = [deed for deed in deeds if deed.group <= open_group]
        self.problems: list[str] = []
        self._found: dict[str, dict[int, str]] = {}
        for stream in {stream for deed in deeds for stream, _ in deed.adds}:
            self._found[stream] = self._messages(stream)
        self._check_messages()
        for deed in self._begun:
            if deed.number in answered:
                self._check(deed)

    def _ask(self, name: str, body: Any = "") -> dict[str, Any]:
        payload = json.dumps(body).encode() if body else b""
        line = f"PUB $JS.API.{name} inbox {len(payload)}\r\n".encode()
        self._connection.send(line + payload + b"\r\n")
        document: dict[str, Any] = json.loads(self._connection.take().split(b"\r\n")[1])
        return document

    def _messages(self, stream: str) -> dict[int, str]:
        info = self._ask(f"STREAM.INFO.{stream}")
        if "error" in info:
            return {}
        state, found = info["state"], {}
        if "lost" in state:
            self.problems.append(f"{stream} reports a loss: {state['lost']}")
        for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
            answer = self._ask(f"STREAM.MSG.GET.{stream}", {"seq": seq})
            if "message" in answer:
                found[seq] = base64.b64decode(answer["message"].get("data", "")).decode()
        return found

    def _check_messages(self) -> None:
        """Nothing comes twice, and nothing is there that nobody has sent."""
        counts = Counter(text for found in self._found.values() for text in found.values())
        begun = {text for deed in self._begun for _, text in deed.adds}
        for text, count in counts.items():
            if count > 1 or text not in begun:
                self.problems.append(f"{text[:12]} is there {count} times")
        for deed in self._begun:
            if deed.what == "transaction":
                there = {counts[text] for _, text in deed.adds}
                if len(there) > 1:
                    self.problems.append("half a transaction is there")

    def _check(self, deed: Deed) -> None:
        """What was answered is so, unless something that was begun later has changed it."""
        later = [other for other in self._begun if other.number > deed.number]
        taken = {text for other in self._begun for text in other.removes}
        gone = {other.stream for other in later if other.what in ("remove", "create", "restore")}
        for stream, text in deed.adds:
            if text not in taken and text not in self._found[stream].values():
                self.problems.append(f"{text[:12]} was acknowledged and is gone")
            seq = deed.answer.get("seq")
            if seq and stream not in gone and self._found[stream].get(seq, text) != text:
                self.problems.append(f"{stream} {seq} was given to two messages")
        there = {text for found in self._found.values() for text in found.values()}
        for text in deed.removes:
            if text in there:
                self.problems.append(f"{text[:12]} is back after {deed.what}")
        if deed.what in ("create", "update") and deed.stream not in gone:
            self._check_stream(deed, later)
        if deed.what == "consumer" or "acked" in deed.says:
            info = self._ask(f"CONSUMER.INFO.{deed.stream}.c")
            floor = info.get("ack_floor", {"stream_seq": -1})["stream_seq"]
            if floor < deed.says.get("acked", 0):
                self.problems.append(f"ack of {deed.says} is forgotten: {floor}")
        is_removed = deed.what == "remove" and deed.stream not in gone
        if is_removed and "error" not in self._ask(f"STREAM.INFO.{deed.stream}"):
            self.problems.append(f"{deed.stream} was deleted and is back")

        if deed.what == "restore" and deed.stream not in gone:
            found = self._ask(f"STREAM.INFO.{deed.stream}").get("state", {}).get("messages")
            if found != deed.says["restored"]:
                self.problems.append(f"{deed.stream} was restored and has {found} messages")

    def _check_stream(self, deed: Deed, later: list[Deed]) -> None:
        info = self._ask(f"STREAM.INFO.{deed.stream}")
        if "error" in info:
            self.problems.append(f"{deed.stream} is gone: {info['error']}")
            return
        rounds = {other.says["round"] for other in [deed, *later] if "round" in other.says}
        description = info["config"].get("description", "")
        if deed.what == "update" and description not in {f"round {one}" for one in rounds}:
            self.problems.append(f"{deed.stream} has lost its update: {description!r}")


@dataclass
class Recording:
    """What a server has done in a folder, and what it was asked for."""

    store: Path
    moments: list[tuple[bool, syscall_trace.Call]]
    deeds: list[Deed]


def recorded(folder: Path, *settings: str) -> Recording:
    """A server that works, and is then stopped."""
    store, trace = folder / "store", folder / "trace"
    store.mkdir()
    config = folder / "server.conf"
    config.write_text(f'jetstream {{ store_dir: "{store}"\n' + "\n".join(settings) + "\n}\n")
    flags = ["-a", "127.0.0.1", "-p", "-1", "-c", str(config)]
    server = ServerProcess("tradewind", flags, wrap=syscall_trace.tracing(trace))
    try:
        server.wait_ready()
        work = Work(server.port)
        work.begin()
        for number in range(ROUNDS):
            work.round(number)
        work.client.close()
    finally:
        server.stop()
    return Recording(store, list(syscall_trace.read_trace(trace)), work.deeds)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Of a server with its defaults."""
    return recorded(tmp_path_factory.mktemp("traced"))


@dataclass
class Outcome:
    """What came of all power failures; `disks` is how many were opened."""

    answered: set[int] = field(default_factory=set)
    disks: int = 0
    problems: list[str] = field(default_factory=list)


def cut_off(
    recording: Recording, cuts: int, ignores: Callable[[syscall_trace.OpenFile], bool]
) -> Outcome:
    """Let the power fail after each answer, and at so many other moments."""
    disk, outcome = SimulatedDisk(), Outcome()
    moments = recording.moments
    random = Random(1)
    steps = [n for n, (is_begin, call) in enumerate(moments) if not is_begin and call.name in STEPS]
    chosen = set(random.sample(steps, min(cuts, len(steps))))
    carried, answered = b"", outcome.answered
    for index, moment in enumerate(syscall_trace.replay(moments, recording.store, disk, ignores)):
        disks = []
        if moment.sent:
            # A line may come in two parts.
            carried = carried[-40:] + moment.sent
            fresh = {int(number) for number in ANSWER.findall(carried)} - answered
            answered |= fresh
            disks += [disk.crash_losing_unsynced()] if fresh else []
        elif index in chosen and answered and (moment.changed or moment.synced):
            disks += [disk.crash(index), disk.crash_losing_unsynced()]
        for left in disks:
            outcome.disks += 1
            found = Verdict(recording.deeds, left, answered).problems
            outcome.problems += [f"moment {index}, {moment.call.name}: {one}" for one in found]
        if len(outcome.problems) > PROBLEMS_MAX:
            break
    return outcome


def test_everything_that_was_answered_outlives_a_power_failure(recording: Recording) -> None:
    outcome = cut_off(recording, CUTS, lambda _: False)
    assert not outcome.problems, "\n".join(outcome.problems[:20])
    assert outcome.answered == {deed.number for deed in recording.deeds}
    assert outcome.disks >= len(outcome.answered)


@pytest.mark.parametrize("ending", ["/msgs/1.blk", "/msgs", "/streams", "/obs/c", "/meta.inf.tmp"])
def test_a_server_that_leaves_out_a_sync_is_found_out(recording: Recording, ending: str) -> None:
    outcome = cut_off(recording, 0, lambda file: file.path.endswith(ending))
    assert outcome.problems


def test_a_server_that_syncs_now_and_then_is_found_out(tmp_path: Path) -> None:
    outcome = cut_off(recorded(tmp_path, "sync_interval: 2m"), 0, lambda _: False)
    assert any("was acknowledged and is gone" in problem for problem in outcome.problems)
