"""Backups from before nats-server 2.15, tars: cut off, hostile, or larger than allowed."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from itertools import starmap

import pytest
from backup_kit import BackupPeer, limited, note_writes

from tar_kit import END as TAR_END
from tar_kit import header, member, padded, record, summed
from tradewind.store.format import s2
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk


@pytest.fixture
def server() -> InProcessServer:
    return InProcessServer(disk=SimulatedDisk())


@pytest.fixture
def peer(server: InProcessServer) -> BackupPeer:
    return BackupPeer(server)


def state(peer: BackupPeer) -> dict[str, object]:
    (answer,) = peer.ask_plain("$JS.API.STREAM.INFO.S")
    document = json.loads(answer)
    return {} if "error" in document else dict(document["state"])


def tar_of(peer: BackupPeer, disk: SimulatedDisk) -> bytes:
    """A tar of the folder of S, with two blocks."""
    peer.create("S")
    for _ in range(10):
        peer.publish("S.a", bytes(900_000))
    folder = f"{disk.root}/jetstream/$G/streams/S"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("meta.inf", "meta.sum", "msgs/1.blk", "msgs/2.blk"):
            data = disk.content_of(f"{folder}/{name}")
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    return raw.getvalue()


@pytest.mark.slow
def test_tar_that_is_cut_off_is_refused_wherever_that_is() -> None:
    disk = SimulatedDisk()
    peer = BackupPeer(InProcessServer(disk=disk))
    whole = tar_of(peer, disk)
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        last = tar.getmembers()[-1]
    end = last.offset_data + -(-last.size // 512) * 512
    for cut in (last.offset, last.offset + 300, last.offset_data, end - 600, end, end + 100):
        answer = peer.upload(peer.begin_restore("S"), s2.compress(whole[:cut]), 500_000)
        assert answer["error"]["err_code"] == 10062, cut
        assert state(peer) == {}
    answer = peer.upload(peer.begin_restore("S"), s2.compress(whole[: end + 1024]), 500_000)
    assert answer["state"]["messages"] == 10


def test_tar_with_an_endless_header_is_refused() -> None:
    peer = BackupPeer(InProcessServer(disk=SimulatedDisk()))
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, 2_000_000
    answer = peer.upload(
        peer.begin_restore("S"), s2.compress(head.tobuf() + bytes(3_000_000)), 500_000
    )
    assert "an extended header has 2000000 bytes" in answer["error"]["description"]


SPARSE_BYTES = 60 * 1024 * 1024


def gnu_sparse(number: int) -> bytes:
    """A block that has no bytes in the tar, and 60 MiB when written."""
    plain = header(b"msgs/%d.blk" % number, 0, b"S", b"ustar  \0")
    regions = b"%011o\0" % SPARSE_BYTES + b"%011o\0" % 0
    return summed(plain[:386] + regions.ljust(97, b"\0") + b"%011o\0" % SPARSE_BYTES + bytes(17))


def pax_sparse(number: int) -> bytes:
    fields = {
        b"major": b"1",
        b"minor": b"0",
        b"name": b"msgs/%d.blk" % number,
        b"realsize": b"%d" % SPARSE_BYTES,
    }
    content = b"".join(record(b"GNU.sparse." + key, value) for key, value in fields.items())
    return member("sparse", padded(b"1\n%d\n0\n" % SPARSE_BYTES), content)


@pytest.mark.parametrize("block", [gnu_sparse, pax_sparse])
def test_sparse_members_write_nothing(
    server: InProcessServer,
    peer: BackupPeer,
    monkeypatch: pytest.MonkeyPatch,
    block: Callable[[int], bytes],
) -> None:
    written = note_writes(monkeypatch)
    limited(server, 16_000_000)
    tar = member("meta.inf", b"{}") + b"".join(map(block, range(1, 11))) + TAR_END
    answer = peer.upload(peer.begin_restore("S"), s2.compress(tar))
    assert "invalid tar header at byte 2" in answer["error"]["description"]
    assert sum(written.values()) < 100_000
    assert state(peer) == {}


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_compressed_blocks_count_with_what_they_hold(storage: str) -> None:
    """Their messages count uncompressed in the stream, so they must fit like that."""
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = BackupPeer(server)
    peer.create("S", compression="s2")
    for _ in range(10):
        peer.publish("S.a", bytes(900_000))
    folder = f"{disk.root}/jetstream/$G/streams/S"
    content = {
        name: disk.content_of(f"{folder}/{name}") for name in ("meta.inf", "meta.sum", "msgs/1.blk")
    }
    assert len(content["msgs/1.blk"]) < 10_000
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    tar = s2.compress(b"".join(starmap(member, content.items())) + TAR_END)
    assert server.engine is not None
    tenant = server.engine.accounts["$G"]
    for limit, is_enough in ((1_000_000, False), (9_000_000, True)):
        tenant.limits = type(tenant.limits)(max_storage=limit, max_memory=limit)
        answer = peer.upload(peer.begin_restore("S", compression="s2", storage=storage), tar)
        assert ("error" not in answer) is is_enough, answer
        if not is_enough:
            code = 10047 if storage == "file" else 10028
            assert answer["error"]["err_code"] == code
            assert (tenant.usage.storage, tenant.usage.memory, state(peer)) == (0, 0, {})


def test_members_that_nobody_needs_count_too(server: InProcessServer, peer: BackupPeer) -> None:
    limited(server, 1_000_000)
    tar = member("unknown", bytes(2_000_000)) + TAR_END
    answer = peer.upload(peer.begin_restore("S"), s2.compress(tar))
    assert answer["error"]["err_code"] == 10047


def hostile_folders() -> dict[str, dict[str, bytes]]:
    """Members that are well-formed tars of things that no server has written."""
    deep = b'{"name":' + b"[" * 100_000
    return {
        "nested configuration": {"meta.inf": deep},
        "configuration that is a list": {"meta.inf": b"[]"},
        "configuration without a name": {"meta.inf": b"{}"},
        "name that is a number": {"meta.inf": b'{"name":1}'},
        "name with a surrogate": {"meta.inf": b'{"name":"\\ud800"}'},
        "nested consumer": {"obs/c/meta.inf": deep, "obs/c/meta.sum": b"x"},
        "state that is cut": {
            "obs/c/meta.inf": b'{"name":"c"}',
            "obs/c/meta.sum": b"x",
            "obs/c/o.dat": b"\x16\x02\xff",
        },
        "blocks of noise": {f"msgs/{n}.blk": os.urandom(3000) for n in (1, 2, 4_000_000_000)},
        "block number too large": {"msgs/9999999999.blk": b"x"},
        "compressed noise": {
            "msgs/1.blk": b"cmp\x01\x80\x80\x80\x01\xff\x06\0\0S2sTwO" + bytes(99)
        },
        "index of noise": {"msgs/index.db": b"\x16\x01" + os.urandom(900)},
        "timers of noise": {"msgs/thw.db": os.urandom(900)},
    }


@pytest.mark.parametrize("kind", hostile_folders())
def test_hostile_content_of_a_tar_is_a_clean_error_or_an_empty_stream(
    server: InProcessServer, peer: BackupPeer, kind: str
) -> None:
    peer.create("S")
    engine = server.engine
    assert engine is not None
    assert engine.root is not None
    folder = f"{engine.root.folder}/$G/streams/S"
    disk = engine.root.disk
    content = {name: disk.read_file(f"{folder}/{name}") for name in ("meta.inf", "meta.sum")}
    peer.ask_plain("$JS.API.STREAM.DELETE.S")
    content |= hostile_folders()[kind]
    tar = b"".join(starmap(member, content.items())) + TAR_END
    answer = peer.upload(peer.begin_restore("S"), s2.compress(tar))
    if "error" in answer:
        assert answer["error"]["err_code"] == 10062
        assert "internal error" not in answer["error"]["description"]
    else:
        assert answer["state"]["messages"] == 0
    assert engine.faults.total == 0
