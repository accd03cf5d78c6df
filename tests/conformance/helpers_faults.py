"""Requests with several faults at once: which one a server names shows the order of its checks.

A scene is what an account holds, a request that it would accept, and changes to that request, most
of which are faults. A case is a scene with some of its changes.
"""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers_fields import READING, normal, unlike
from helpers_js import PASSWORD, PREFIX, ApiClient
from helpers_ops import running

from harness import ServerProcess

Change = dict[str, Any]
# Subject and body of a request, or subject and header fields of a message.
Step = tuple[str, Any]
# What differs between two runs of one server.
VARYING_FIELD = re.compile(r"(Nats-Time-Stamp|Nats-Stream-Identity|Nats-Pin-Id): \S+")
CONFIG = """
accounts {
  OPEN { users: [ {user: open, password: hush} ], jetstream: enabled }
  BOUNDED {
    users: [ {user: bounded, password: hush} ]
    jetstream { max_mem: 1000, max_file: 2000, max_streams: 4, max_consumers: 3,
                max_ack_pending: 10, max_bytes_required: true,
                mem_max_stream_bytes: 500, disk_max_stream_bytes: 1500 }
  }
}
jetstream {
  store_dir: "STORE"
  max_memory_store: 1000000
  max_file_store: 1000000
  limits { max_ack_pending: 2000, max_request_batch: 500, duplicate_window: "1h" }
}
"""


@dataclass(frozen=True)
class Scene:
    """The preparation of a request, and the request, which can be changed."""

    name: str
    subject: str
    base: dict[str, Any]
    changes: Sequence[Change]
    before: Sequence[Step] = ()
    config: str = ""  # the member of the request that the changes go to
    beside: frozenset[str] = frozenset()  # changes that go beside that
    user: str = "open"


@dataclass(frozen=True)
class FaultCase:
    """One request in a scene."""

    scene: Scene = field(repr=False)
    subject: str
    body: bytes
    header: bytes = b""
    # What a fast batch has in its reply subject; ID stands for one that is new.
    reply_end: str = ""

    def __str__(self) -> str:
        header = self.header.decode().replace("\r\n", " | ")
        text = self.body.decode("utf-8", "replace")
        return f"{self.scene.name}: {self.subject} {self.reply_end} {header}{text}"


def request_case(scene: Scene, changes: Sequence[Change]) -> FaultCase:
    """The request of a scene with some members changed."""
    request = json.loads(json.dumps(scene.base))
    target = request[scene.config] if scene.config else request
    for change in changes:
        for name, value in change.items():
            (request if name in scene.beside else target)[name] = value
    return FaultCase(scene, f"{PREFIX}{scene.subject}", json.dumps(request).encode())


def publish_case(scene: Scene, changes: Sequence[Change]) -> FaultCase:
    """The message of a scene with some header fields, the payload or the subject changed."""
    fields = dict(scene.base)
    for change in changes:
        fields |= change
    payload = fields.pop("payload", "")
    subject = fields.pop("subject", scene.subject)
    reply_end = fields.pop("reply", "")
    return FaultCase(scene, subject, payload.encode(), header_block(fields), reply_end)


def header_block(fields: dict[str, str]) -> bytes:
    """The header of a message; nothing without fields."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""


def random_changes(scene: Scene, count: int, seed: str) -> Iterator[list[Change]]:
    """Two or three changes at a time; the same ones for the same seed."""
    chance = random.Random(f"{scene.name} {seed}")
    for _ in range(count):
        yield chance.sample(list(scene.changes), chance.choice((2, 2, 3)))


class FaultClient(ApiClient):
    """Prepares scenes and sends cases, one after the other.

    The preparation of a scene is repeated only if the last request was not refused.
    """

    def __init__(self, server: ServerProcess, user: str) -> None:
        super().__init__(server, **{"user": user, "pass": PASSWORD})
        self._scene: Scene | None = None
        self._count = 1

    def send_case(self, case: FaultCase) -> object:
        """The server's response to a case, without values that are new every time."""
        if self._scene is not case.scene:
            self.delete_streams()
            for step in case.scene.before:
                self._prepare(*step)
            self._scene = case.scene
        header, payload = self._exchange(case.subject, case.body, case.header, case.reply_end)
        found = normal(payload)
        is_refused = isinstance(found, dict) and "error" in found
        if not is_refused and not case.subject.startswith(READING):
            self._scene = None
        if isinstance(found, dict):
            if "error" not in found:
                # How far a copy has come is a matter of time, and nats-server counts the requests
                # of its own mirrors and sources, too.
                for name in ("mirror", "api"):
                    found.pop(name, None)
            if "deliver_subject" in found:
                # An empty message ends the upload, and the answer says what is wrong with it.
                _, end = self._exchange(json.loads(payload)["deliver_subject"])
                found["deliver_subject"] = json.loads(end)["error"]["err_code"] if end else ""
        return VARYING_FIELD.sub(r"\1", header.decode()), found

    def _prepare(self, subject: str, content: Any) -> None:
        if subject.startswith(("STREAM.", "CONSUMER.")):
            self.done(subject, content)
        elif isinstance(content, bytes):
            self._exchange(subject, content)
        else:
            payload = b"" if "Nats-Incr" in content else b"x"
            answer = json.loads(self._exchange(subject, payload, header_block(content))[1])
            assert "error" not in answer, answer

    def _exchange(
        self, subject: str, body: bytes = b"", header: bytes = b"", reply_end: str = ""
    ) -> tuple[bytes, bytes]:
        """Header and payload of the first answer; there may be more, which do not come here."""
        self._count += 1
        sid = str(self._count)
        size = f"{len(header)} {len(header) + len(body)}" if header else f"{len(body)}"
        verb = "HPUB" if header else "PUB"
        reply = f"r.{sid}.{reply_end.replace('ID', sid)}" if reply_end else f"r.{sid}"
        lines = f"SUB {reply} {sid}\r\nUNSUB {sid} 1\r\n{verb} {subject} {reply} {size}\r\n"
        self.raw.send(lines.encode() + header + body + b"\r\n")
        _, block, payload = self.raw.read_message()
        return block, payload


@contextmanager
def limited_servers(folder: Path, *, strict: bool = True) -> Iterator[list[ServerProcess]]:
    """One server of each kind, with an account without limits and one with many."""
    config = CONFIG if strict else CONFIG.replace("jetstream {\n", "jetstream {\n  strict: false\n")
    with ExitStack() as stack:
        servers = []
        for kind in ("official", "tradewind"):
            (folder / kind).mkdir()
            servers.append(stack.enter_context(running(kind, folder / kind, config)))
        yield servers


def both_answers(
    servers: list[ServerProcess], wanted: Sequence[FaultCase]
) -> list[tuple[FaultCase, Any, Any]]:
    """Ask both servers side by side; gives each case with the official answer and ours."""
    answers: dict[str, list[object]] = {}

    def ask_all(server: ServerProcess) -> None:
        users = sorted({case.scene.user for case in wanted})
        clients = {user: FaultClient(server, user) for user in users}
        try:
            found = [clients[case.scene.user].send_case(case) for case in wanted]
            for client in clients.values():
                client.delete_streams()
            answers[server.kind] = found
        finally:
            for client in clients.values():
                client.raw.close()

    threads = [threading.Thread(target=ask_all, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(zip(wanted, answers["official"], answers["tradewind"], strict=True))


def unlike_answers(servers: list[ServerProcess], wanted: Sequence[FaultCase]) -> list[str]:
    """Each case that the servers answer differently, and how."""
    return [
        f"{case}: {'; '.join(unlike(official, ours))}"
        for case, official, ours in both_answers(servers, wanted)
        if official != ours
    ]
