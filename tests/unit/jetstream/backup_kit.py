"""A peer that takes and restores backups on an in-process server, step by step."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from engine_kit import Peer

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedFile

CHUNKS = "backup.chunks"


class Chunk(NamedTuple):
    """A message of a backup."""

    reply: str
    header: bytes
    payload: bytes


class BackupPeer(Peer):
    """Asks for backups on `CHUNKS` and sends them back."""

    def __init__(self, server: InProcessServer) -> None:
        super().__init__(server)
        self.listen()

    def listen(self) -> None:
        prefix = "$JS.EVENT.ADVISORY.STREAM"
        self.connection.send(
            f"SUB {CHUNKS} 2\r\nSUB {prefix}.SNAPSHOT_COMPLETE.* 3\r\n"
            f"SUB {prefix}.RESTORE_COMPLETE.* 4\r\n".encode()
        )

    def take_all(self) -> tuple[list[Chunk], list[dict[str, Any]], list[bytes]]:
        """The chunks, the events and the answers that have arrived."""
        data = self.connection.take()
        chunks, events, answers = [], [], []
        while data:
            line, _, data = data.partition(b"\r\n")
            words = line.decode().split()
            if words[0] not in ("MSG", "HMSG"):
                continue
            sizes = 2 if words[0] == "HMSG" else 1
            reply = words[3] if len(words) == 4 + sizes else ""
            size, header_size = int(words[-1]), int(words[-2]) if sizes == 2 else 0
            header, payload = data[:header_size], data[header_size:size]
            data = data[size + 2 :]
            if words[1] == CHUNKS:
                chunks.append(Chunk(reply, header, payload))
            elif words[1].startswith("$JS.EVENT."):
                events.append(json.loads(payload))
            else:
                answers.append(payload)
        return chunks, events, answers

    def acknowledge(self, chunk: Chunk) -> None:
        self.connection.send(f"PUB {chunk.reply} 0\r\n\r\n".encode())

    def begin(self, stream: str, **request: Any) -> list[Chunk]:
        """Ask for a backup; the chunks that come without any acknowledgement."""
        body = json.dumps({"deliver_subject": CHUNKS, **request}).encode()
        subject = f"$JS.API.STREAM.SNAPSHOT.{stream}"
        self.connection.take()
        self.connection.send(f"PUB {subject} inbox.s {len(body)}\r\n".encode() + body + b"\r\n")
        chunks, _, answers = self.take_all()
        assert len(answers) == 1, answers
        assert b'"error"' not in answers[0], answers
        return chunks

    def backup(self, stream: str, **request: Any) -> bytes:
        """All of it."""
        chunks, data = self.begin(stream, **request), b""
        while chunks:
            chunk = chunks.pop(0)
            if not chunk.payload:
                assert not chunks
                assert chunk.header in (b"", b"NATS/1.0 204\r\n\r\n"), chunk.header
                return data
            data += chunk.payload
            if chunk.reply:
                self.acknowledge(chunk)
                chunks += self.take_all()[0]
        raise AssertionError("the backup has no end")

    def begin_restore(self, stream: str, **config: Any) -> str:
        """Where to send the chunks."""
        config = {"name": stream, "subjects": [f"{stream}.>"], **config}
        answers = self.ask_plain(f"$JS.API.STREAM.RESTORE.{stream}", {"config": config})
        return str(json.loads(answers[0])["deliver_subject"])

    def ask_plain(self, subject: str, body: Any = b"") -> list[bytes]:
        """The payloads that come back, without events."""
        self.connection.take()
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"PUB {subject} inbox.r {len(payload)}\r\n".encode()
        self.connection.send(head + payload + b"\r\n")
        return self.take_all()[2]

    def upload(self, subject: str, data: bytes, chunk_bytes: int = 10_000) -> dict[str, Any]:
        """Send everything; the answer to the end."""
        for start in range(0, len(data), chunk_bytes):
            assert self.ask_plain(subject, data[start : start + chunk_bytes]) == [b""]
        (answer,) = self.ask_plain(subject)
        document: dict[str, Any] = json.loads(answer)
        return document


def note_writes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How far each file is ever written, from now on."""
    found: dict[str, int] = {}
    write = SimulatedFile.write

    def noted(self: SimulatedFile, data: bytes, offset: int) -> None:
        found[self.path] = max(found.get(self.path, 0), offset + len(data))
        write(self, data, offset)

    monkeypatch.setattr(SimulatedFile, "write", noted)
    return found


def limited(server: InProcessServer, max_storage: int) -> None:
    """Let the account store this much."""
    assert server.engine is not None
    tenant = server.engine.accounts["$G"]
    tenant.limits = type(tenant.limits)(max_storage=max_storage)
