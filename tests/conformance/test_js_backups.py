"""The snapshot API on both servers: requests, chunks, events, and what comes back."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers_consumer import Frame
from helpers_js import ApiClient

from harness import RawClient, ServerProcess, StartServer
from tar_kit import END, extended, header, member, padded, record, summed
from tradewind.store.format import s2

CHUNKS = "chunks"
EVENTS = "$JS.EVENT.ADVISORY.STREAM"
# So long the official server waits for the receiver of a backup.
RECEIVER_SECONDS = 2
_numbers = itertools.count(1)


class BackupClient(ApiClient):
    """Sees the chunks of backups and the events about them; `stream` is its own."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(server)
        # Events of another test may come late.
        self.stream = f"S{next(_numbers)}"
        self.config: dict[str, Any] = {"name": self.stream, "subjects": [f"{self.stream}.>"]}
        for sid, subject in enumerate(
            (
                CHUNKS,
                f"{EVENTS}.SNAPSHOT_CREATE.*",
                f"{EVENTS}.SNAPSHOT_COMPLETE.*",
                f"{EVENTS}.RESTORE_CREATE.*",
                f"{EVENTS}.RESTORE_COMPLETE.*",
            ),
            2,
        ):
            self.raw.send(f"SUB {subject} {sid}\r\n")
        self.frames: list[Frame] = []

    def next(self, prefix: str) -> Frame:
        """The next message on a subject that begins so."""
        for index, frame in enumerate(self.frames):
            if frame.subject.startswith(prefix):
                return self.frames.pop(index)
        while not (frame := self._read()).subject.startswith(prefix):
            self.frames.append(frame)
        return frame

    def _read(self) -> Frame:
        words = self.raw.read_line().decode().split()
        while words[0] not in ("MSG", "HMSG"):
            words = self.raw.read_line().decode().split()
        sizes = 2 if words[0] == "HMSG" else 1
        reply = words[3] if len(words) == 4 + sizes else ""
        header_size = int(words[-2]) if sizes == 2 else 0
        data = self.raw.read_exact(int(words[-1]) + 2)[:-2]
        return Frame(words[1], words[2], reply, data[:header_size], data[header_size:])

    def ask(self, subject: str, body: bytes | dict[str, Any] = b"") -> bytes:
        return self.ask_at(f"$JS.API.{subject}", body)

    def ask_at(self, subject: str, body: bytes | dict[str, Any] = b"") -> bytes:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        self.raw.send(f"PUB {subject} answers {len(data)}\r\n".encode() + data + b"\r\n")
        return self.next("answers").payload

    def backup(self, **request: Any) -> tuple[bytes, list[Frame]]:
        """The data, and all messages that brought it."""
        self.done(f"STREAM.SNAPSHOT.{self.stream}", {"deliver_subject": CHUNKS, **request})
        frames = [self.next(CHUNKS)]
        while frames[-1].payload:
            if frames[-1].reply:
                self.raw.send(f"PUB {frames[-1].reply} 0\r\n\r\n")
            frames.append(self.next(CHUNKS))
        return b"".join(frame.payload for frame in frames), frames

    def restore(self, data: bytes, config: dict[str, Any], size: int = 700) -> dict[str, Any]:
        """The answer to the last chunk."""
        request = {"config": config, "state": {}}
        subject = self.done(f"STREAM.RESTORE.{config['name']}", request)["deliver_subject"]
        for start in range(0, len(data), size):
            assert self.ask_at(subject, data[start : start + size]) == b""
        answer: dict[str, Any] = json.loads(self.ask_at(subject))
        return answer

    def publish(self, count: int, size: int = 10) -> None:
        for index in range(count):
            payload = Random(index).randbytes(size)
            self.raw.send(
                f"PUB {self.stream}.{index} answers {len(payload)}\r\n".encode() + payload + b"\r\n"
            )
            self.next("answers")


@pytest.fixture
def client(js_server: ServerProcess) -> Iterator[BackupClient]:
    with BackupClient(js_server) as backup_client:
        backup_client.done(f"STREAM.CREATE.{backup_client.stream}", backup_client.config)
        yield backup_client
        backup_client.delete_streams()


@pytest.mark.parametrize(
    ("subject", "body", "error"),
    [
        ("SNAPSHOT.$S", b"", [400, 10003, "bad request"]),
        ("SNAPSHOT.none", b"{oops", [404, 10059, "stream not found"]),
        ("SNAPSHOT.none", {"deliver_subject": ""}, [404, 10059, "stream not found"]),
        ("SNAPSHOT.$S", {}, [400, 10003, "bad request"]),
        ("SNAPSHOT.$S", {"jsck": True}, [400, 10015, "deliver subject not valid"]),
        ("SNAPSHOT.$S", {"deliver_subject": "a.*"}, [400, 10015, "deliver subject not valid"]),
        ("SNAPSHOT.$S", {"deliver_subject": "a b"}, [400, 10015, "deliver subject not valid"]),
        (
            "SNAPSHOT.$S",
            {"deliver_subject": "a", "x": 1},
            [400, 10025, 'invalid JSON: json: unknown field "x"'],
        ),
        ("RESTORE.N", b"", [400, 10003, "bad request"]),
        (
            "RESTORE.N",
            {"config": {"name": "M"}},
            [400, 10056, "stream name in subject does not match request"],
        ),
        (
            "RESTORE.N/M",
            {"config": {"name": "N/M"}},
            [400, 10128, "Stream name can not contain path separators"],
        ),
        ("RESTORE.N", {"config": {"max_age": 5}}, [500, 10052, "max age needs to be >= 100ms"]),
        (
            "RESTORE.$S",
            {"config": {}, "state": {}},
            [400, 10130, "stream name already in use, cannot restore"],
        ),
    ],
)
def test_requests_are_refused_alike(
    client: BackupClient, subject: str, body: bytes | dict[str, Any], error: list[Any]
) -> None:
    assert client.error(f"STREAM.{subject}".replace("$S", client.stream), body) == error


def test_small_backup_comes_in_one_chunk_without_reply_and_a_bare_end(
    client: BackupClient,
) -> None:
    client.publish(3)
    _, frames = client.backup()
    assert [(bool(frame.payload), frame.reply, frame.header) for frame in frames] == [
        (True, "", b""),
        (False, "", b""),
    ]


def test_full_chunks_are_to_be_answered_and_the_end_has_a_status(client: BackupClient) -> None:
    client.publish(40, 200)
    _, frames = client.backup(chunk_size=1024, window_size=2048)
    full = frames[:-2]
    assert full
    for index, frame in enumerate(full, 1):
        assert len(frame.payload) == 1024
        start, _, rest = frame.reply.partition(f".ACK.{client.stream}.")
        assert start == "$JS.SNAPSHOT"
        assert rest.split(".")[1:] == ["1024", str(index)]
    assert (frames[-2].reply, frames[-1].reply) == ("", "")
    assert frames[-1].header == b"NATS/1.0 204\r\n\r\n"


def late_receiver(client: BackupClient) -> str:
    """Subscribe to a backup after its answer, but in time: the subject of its chunks."""
    for number in itertools.count(1):
        subject = f"late.{number}"
        begin = time.monotonic()
        client.done(f"STREAM.SNAPSHOT.{client.stream}", {"deliver_subject": subject})
        for _ in range(100):  # a server that does not wait for its receiver is done by then
            client.done(f"STREAM.INFO.{client.stream}")
        client.raw.send(f"SUB {subject} {subject}\r\n")
        client.done(f"STREAM.INFO.{client.stream}")
        if time.monotonic() - begin < RECEIVER_SECONDS:
            return subject
        # It took so long that the server may have begun without us.
        client.raw.send(f"UNSUB {subject}\r\n")
        client.next(f"{EVENTS}.SNAPSHOT_COMPLETE.{client.stream}")
    raise AssertionError


@pytest.mark.parametrize("pattern", [">", "late.*"])
def test_receiver_that_subscribes_after_the_answer_gets_all_whoever_hears_it_by_a_pattern(
    client: BackupClient, js_server: ServerProcess, pattern: str
) -> None:
    client.publish(3)
    with RawClient(js_server.port).connect() as bystander:
        bystander.send(f"SUB {pattern} 1\r\n")
        bystander.ping()
        subject = late_receiver(client)
        chunk, end = client.next(subject), client.next(subject)
    assert s2.decompress(chunk.payload, 1 << 20).startswith(b"NATSARC1")
    assert end.payload == b""
    completed = client.next(f"{EVENTS}.SNAPSHOT_COMPLETE.{client.stream}")
    assert "error" not in json.loads(completed.payload)


def test_receiver_that_only_has_a_pattern_gets_all_after_a_while(
    client: BackupClient, js_server: ServerProcess
) -> None:
    client.publish(3)
    with RawClient(js_server.port).connect() as receiver:
        receiver.send("SUB pattern.* 1\r\n")
        receiver.ping()
        client.done(f"STREAM.SNAPSHOT.{client.stream}", {"deliver_subject": "pattern.chunks"})
        assert receiver.read_message()[2]
        assert receiver.read_message()[2] == b""


def test_receiver_that_goes_away_half_way_makes_the_backup_a_failure(
    client: BackupClient,
) -> None:
    client.publish(40, 200)
    request = {"deliver_subject": "gone.chunks", "chunk_size": 1024, "window_size": 1024}
    client.raw.send("SUB gone.chunks gone\r\n")
    client.done(f"STREAM.SNAPSHOT.{client.stream}", request)
    client.next("gone.chunks")
    client.raw.send("UNSUB gone\r\n")
    completed = client.next(f"{EVENTS}.SNAPSHOT_COMPLETE.{client.stream}")
    assert json.loads(completed.payload)["error"] == "no interest"


def test_size_of_a_chunk_is_at_least_a_kilobyte(client: BackupClient) -> None:
    client.publish(40, 200)
    _, frames = client.backup(chunk_size=3)
    assert {len(frame.payload) for frame in frames[:-2]} == {1024}


def test_answer_has_configuration_and_state(client: BackupClient) -> None:
    client.publish(3)
    answer = client.done(f"STREAM.SNAPSHOT.{client.stream}", {"deliver_subject": CHUNKS})
    assert list(answer) == ["type", "config", "state"]
    info = client.done(f"STREAM.INFO.{client.stream}")
    assert answer["state"] == info["state"]
    assert answer["config"]["metadata"] == {"_nats.req.level": "0"}
    client.next(CHUNKS)
    client.next(CHUNKS)


def test_archive_begins_with_the_state_and_ends_with_zeros(client: BackupClient) -> None:
    client.publish(3)
    consumer = {"durable_name": "c", "name": "c", "ack_policy": "explicit"}
    client.done(
        f"CONSUMER.CREATE.{client.stream}.c", {"stream_name": client.stream, "config": consumer}
    )
    plain = s2.decompress(client.backup()[0], 1 << 20)
    assert plain.startswith(b"NATSARC1\x0a")
    assert plain.endswith(bytes(5))
    assert (
        plain.index(b"state.json{")
        < plain.index(b"consumers/c{")
        < plain.index(f"{client.stream}.0".encode())
    )
    without = s2.decompress(client.backup(no_consumers=True)[0], 1 << 20)
    assert b"consumers/c" not in without
    assert b'"consumer_count":0' in without


def test_events_tell_of_a_backup(client: BackupClient) -> None:
    client.publish(1)
    client.backup()
    created = json.loads(client.next(f"{EVENTS}.SNAPSHOT_CREATE.{client.stream}").payload)
    completed = json.loads(client.next(f"{EVENTS}.SNAPSHOT_COMPLETE.{client.stream}").payload)
    assert created["type"] == "io.nats.jetstream.advisory.v1.snapshot_create"
    assert completed["type"] == "io.nats.jetstream.advisory.v1.snapshot_complete"
    common = {"type", "id", "timestamp", "stream", "client"}
    assert set(created) == common | {"state"}
    assert set(completed) == common | {"start", "end"}
    assert created["state"]["messages"] == 1
    assert created["client"]["acc"] == "$G"


def test_events_tell_of_a_restore(client: BackupClient) -> None:
    client.publish(1)
    data, _ = client.backup()
    client.done(f"STREAM.DELETE.{client.stream}")
    client.restore(data, client.config)
    created = json.loads(client.next(f"{EVENTS}.RESTORE_CREATE.{client.stream}").payload)
    completed = json.loads(client.next(f"{EVENTS}.RESTORE_COMPLETE.{client.stream}").payload)
    assert created["type"] == "io.nats.jetstream.advisory.v1.restore_create"
    assert completed["type"] == "io.nats.jetstream.advisory.v1.restore_complete"
    common = {"type", "id", "timestamp", "stream", "client"}
    assert set(created) == common
    assert set(completed) == common | {"start", "end", "bytes"}
    assert completed["bytes"] == len(data)


def test_restored_stream_is_the_one_that_was_saved(client: BackupClient) -> None:
    client.publish(20, 100)
    client.done(f"STREAM.MSG.DELETE.{client.stream}", {"seq": 5})
    data, _ = client.backup()
    before = client.done(f"STREAM.INFO.{client.stream}", {"deleted_details": True})["state"]
    client.done(f"STREAM.DELETE.{client.stream}")
    answer = client.restore(data, client.config)
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert "did_create" not in answer
    assert client.done(f"STREAM.INFO.{client.stream}", {"deleted_details": True})["state"] == before
    ack = json.loads(client.ask_at(f"{client.stream}.next", b"more"))
    assert ack == {"stream": client.stream, "seq": 21}


def test_upload_that_is_no_backup_is_refused_at_its_end(client: BackupClient) -> None:
    client.done(f"STREAM.DELETE.{client.stream}")
    error = client.restore(b"no backup" * 100, client.config)["error"]
    assert (error["code"], error["err_code"]) == (500, 10062)
    assert client.error(f"STREAM.INFO.{client.stream}") == [404, 10059, "stream not found"]


def test_replicas_are_refused(client: BackupClient) -> None:
    """By nats-server only after the upload."""
    client.done(f"STREAM.DELETE.{client.stream}")
    config = {**client.config, "num_replicas": 3}
    answer = client.request(f"STREAM.RESTORE.{client.stream}", {"config": config, "state": {}})
    if client.kind == "tradewind":
        assert answer["error"]["err_code"] == 10074
    else:
        assert json.loads(client.ask_at(answer["deliver_subject"]))["error"]["err_code"] == 10062


def test_stream_whose_source_has_an_invalid_filter_is_restored(client: BackupClient) -> None:
    """An update may have set it. nats-server refuses its own backup then."""
    client.publish(2)
    config = {**client.config, "sources": [{"name": "X", "filter_subject": "a..b"}]}
    client.done(f"STREAM.UPDATE.{client.stream}", config)
    data, _ = client.backup()
    client.done(f"STREAM.DELETE.{client.stream}")
    answer = client.restore(data, config)
    if client.kind == "tradewind":
        assert answer["state"]["messages"] == 2
    else:
        assert answer["error"]["err_code"] == 10062


def test_sealed_stream_is_restored_sealed(client: BackupClient) -> None:
    client.publish(2)
    sealed = client.done(f"STREAM.UPDATE.{client.stream}", {**client.config, "sealed": True})[
        "config"
    ]
    data, _ = client.backup()
    client.done(f"STREAM.DELETE.{client.stream}")
    answer = client.restore(data, sealed)
    assert "error" not in answer, answer
    assert answer["config"]["sealed"] is True
    assert client.error(f"STREAM.PURGE.{client.stream}") == [
        400,
        10109,
        "invalid operation on sealed stream",
    ]


# ---------------------------------------------------------------- tars of servers before 2.15

HUGE = 640 * 1024 * 1024


def sparse_header() -> bytes:
    """A file of GNU's sparse format: four bytes in the tar, 640 MiB when written."""
    plain = header(b"msgs/1.blk", 4, b"S", b"ustar  \0")
    regions = b"%011o\0" % (HUGE - 4) + b"%011o\0" % 4
    sparse = plain[:386] + regions.ljust(97, b"\0") + b"%011o\0" % HUGE
    return summed(sparse.ljust(512, b"\0")[:512]) + padded(b"data")


def sparse_records(version: str) -> bytes:
    size = b"%d" % HUGE
    if version == "0.1":
        fields = {b"size": size, b"numblocks": b"1", b"map": b"%d,4" % (HUGE - 4)}
        data = b"data"
    else:
        fields = {b"major": b"1", b"minor": b"0", b"name": b"msgs/1.blk", b"realsize": size}
        data = padded(b"1\n%d\n4\n" % (HUGE - 4)) + b"data"
    content = b"".join(record(b"GNU.sparse." + key, value) for key, value in fields.items())
    return member("msgs/1.blk", data, content)


HOSTILE_TARS = {
    "an endless record": lambda: extended(b"1" * 60_000_000),
    "endless records": lambda: extended(record(b"mtime", b"1") * 5_000_000),
    "records without a key": lambda: extended(b"6 =x\n\n" * 10),
    "a record cut off": lambda: extended(b"99 path=x\n") + header(b"a", 0),
    "long names without end": lambda: (
        (header(b"././@LongLink", 2, b"L", b"ustar  \0") + padded(b"a\0")) * 5000
    ),
    "a long name that is huge": lambda: (
        header(b"././@LongLink", 60_000_000, b"L", b"ustar  \0") + bytes(60_000_000)
    ),
    "a sparse file": sparse_header,
    "sparse file 0.1": lambda: sparse_records("0.1"),
    "sparse file 1.0": lambda: sparse_records("1.0"),
    "a map that is odd": lambda: member("a", b"", record(b"GNU.sparse.map", b"1,2,3")),
    "a size that is negative": lambda: header(b"a", b"-0000000001\0"),
    "a size of 95 bits": lambda: header(b"a", b"\x80" + b"\x7f" * 11),
    "a wrong checksum": lambda: header(b"a", 0).replace(b"nats", b"cats"),
    "a symbolic link": lambda: header(b"msgs", 0, b"2"),
    "a device": lambda: header(b"msgs/1.blk", 0, b"3"),
    "only zeros": lambda: bytes(60_000_000),
}


def stored_bytes(folder: Path) -> int:
    """What files below a folder take, while the server may still remove some."""
    stored = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                stored += Path(place, name).stat().st_blocks * 512
    return stored


@pytest.mark.parametrize("shape", HOSTILE_TARS)
def test_hostile_tar_is_refused_and_nobody_waits(
    start: StartServer, tmp_path: Path, shape: str
) -> None:
    server = start(
        f'jetstream {{ store_dir: "{tmp_path}" }}\n'
        "accounts { A { users: [{user: a, password: a}], jetstream {max_file: 200M} } }\n"
        "no_auth_user: a\n"
    )
    with BackupClient(server) as client, RawClient(server.port) as bystander:
        bystander.connect()
        config = {"name": "OLD", "subjects": ["OLD"]}
        answer = client.restore(s2.compress(HOSTILE_TARS[shape]() + END), config, 500_000)
        assert answer["error"]["code"] in (400, 500)
        bystander.ping()
        assert client.done("INFO")["storage"] == 0
        answer = json.loads(client.ask("STREAM.INFO.OLD"))
        assert answer["error"]["err_code"] == 10059
    assert stored_bytes(tmp_path) < 1_000_000
