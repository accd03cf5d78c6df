"""Checkpoints of other file systems: which there are, who may use one, and what is read of them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from pipeline_texts import pipeline_of_text

from tradewind.pipelines.errors import PipelineError, PipelineFileError
from tradewind.pipelines.lake.lakes import SinkQuery
from tradewind.pipelines.machine import places
from tradewind.pipelines.machine.places import (
    RemoteFolder,
    names_in,
    place_of,
    problem_of,
    replace_file,
)
from tradewind.pipelines.payloads.schemas import FrozenSchema, read_frozen
from tradewind.pipelines.state.leases import LEASE_FILE, LEASE_SECONDS, Owner, locked, take_lease
from tradewind.pipelines.state.query_batches import batches_of
from tradewind.pipelines.state.status import read_status

TABLES = "sources: {orders: {stream: O}}\nsinks: {show: {from: orders, console: {}}}\n"


class MemoryFiles:
    """A file system in a dictionary, which may be away."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.is_away = False

    def _check(self) -> None:
        if self.is_away:
            raise PipelineError("the store is away")

    def read(self, uri: str) -> bytes:
        self._check()
        try:
            return self.files[uri]
        except KeyError:
            raise FileNotFoundError(uri) from None

    def write(self, uri: str, data: bytes, *, is_new: bool) -> None:
        self._check()
        if is_new and uri in self.files:
            raise FileExistsError(uri)
        self.files[uri] = data

    def names(self, uri: str) -> list[str]:
        self._check()
        inside = [one.removeprefix(f"{uri}/") for one in self.files if one.startswith(f"{uri}/")]
        return sorted({one.partition("/")[0] for one in inside})

    def remove(self, uri: str) -> None:
        self._check()
        self.files.pop(uri, None)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryFiles:
    files = MemoryFiles()
    monkeypatch.setattr(RemoteFolder, "_files", lambda _self: files)
    return files


STATE = RemoteFolder("s3a://lake/state")


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("s3a://lake/state", ""),
        ("hdfs://name:8020/state", ""),
        ("hdfs:///state", ""),
        ("abfss://box@account.dfs.core.windows.net/state", ""),
        ("gs://lake/state", ""),
        ("file:///state", ""),
        ("s3://lake/state", "s3a://lake/state"),
        ("ftp://lake/state", "ftp is not one of file, hdfs"),
        ("s3a://lake", "name a folder after the bucket"),
        ("s3a://lake/", "name a folder after the bucket"),
        ("s3a://key:hush@lake/state", "no password in an address"),
        ("file://state", "use file:///FOLDER"),
        ("file:///", "use file:///FOLDER"),
    ],
)
def test_a_checkpoint_is_in_a_file_system_that_spark_can_have(uri: str, problem: str) -> None:
    assert problem in problem_of(uri)
    assert bool(problem_of(uri)) == bool(problem)
    text = f"pipeline: p\ncheckpoint: {uri}\n{TABLES}"
    if not problem:
        assert str(pipeline_of_text(text).checkpoint).endswith("/state")
        return
    with pytest.raises(PipelineFileError) as caught:
        pipeline_of_text(text)
    assert caught.value.line == 2
    assert "hush" not in str(caught.value)


def test_paths_of_this_machine_stay_paths(tmp_path: Path) -> None:
    assert place_of(tmp_path, "state", {}) == tmp_path / "state"
    assert place_of(tmp_path, "/state", {}) == Path("/state")
    assert place_of(tmp_path, "file:///a/state", {}) == Path("/a/state")
    folder = place_of(tmp_path, "s3a://lake/state/", {"spark.hadoop.fs.s3a.secret.key": "hush"})
    assert isinstance(folder, RemoteFolder)
    assert "hush" not in repr(folder / "x")
    assert str(folder / "queries" / "lake") == "s3a://lake/state/queries/lake"
    assert (tmp_path / "none").is_dir() is False
    assert names_in(tmp_path / "none") == []


def test_what_is_beside_a_checkpoint_is_read_from_there(store: MemoryFiles) -> None:
    assert read_status(STATE) is None
    assert read_frozen(STATE, "orders") is None
    frozen = FrozenSchema("id bigint", 1, 0)
    replace_file(STATE / "schemas" / "orders.json", msgspec.json.encode(frozen))
    assert read_frozen(STATE, "orders") == frozen
    query = SinkQuery("p.lake", STATE / "queries" / "lake")
    assert query.committed() is None
    for name, text in (
        ("metadata", '{"id": "f7c1"}'),
        ("offsets/10", "ten"),
        ("offsets/9", "nine"),
    ):
        replace_file(query.checkpoint / name, text.encode())
    for name in ("9", "10", ".10.crc", "10.tmp"):
        replace_file(query.checkpoint / "commits" / name, b"")
    assert query.committed() == "ten"
    assert query.marks(9)["tradewind.writer"] == "f7c1"


def test_the_batches_of_a_checkpoint_elsewhere_are_known(store: MemoryFiles) -> None:
    text = f"pipeline: p\ncheckpoint: {STATE}\n{TABLES}"
    pipeline = pipeline_of_text(text)
    assert batches_of(pipeline) == {}
    query = STATE / "queries" / "show"
    for number, seq in ((0, 4), (1, 9)):
        point = {"O": {"created_ns": 1, "seq": seq, "after": 4 * number}}
        log = f"v1\n{{}}\n{msgspec.json.encode(point).decode()}"
        replace_file(query / "offsets" / str(number), log.encode())
    replace_file(query / "commits" / "0", b"v1\n{}")
    (batches,) = batches_of(pipeline).values()
    found = [(one.batch, one.first_seq, one.last_seq, one.state) for one in batches]
    assert found == [(0, 1, 4, "committed"), (1, 5, 9, "planned")]


def owner_of(store: MemoryFiles) -> Owner:
    return msgspec.json.decode(store.files[f"{STATE}/{LEASE_FILE}"], type=Owner)


def test_a_lease_is_refused_while_its_owner_goes_on(store: MemoryFiles) -> None:
    lease = take_lease(STATE, lambda: 100.0)
    with pytest.raises(PipelineError, match=rf"in use by process {os.getpid()} of .* in 50 s"):
        take_lease(STATE, lambda: 110.0)
    lease.release()
    assert store.files == {}
    with locked(STATE), pytest.raises(PipelineError, match="is in use"):
        take_lease(STATE)
    assert store.files == {}


def test_a_lease_that_is_old_is_taken_over_and_its_owner_stops(store: MemoryFiles) -> None:
    now = [100.0]
    lease = take_lease(STATE, lambda: now[0])
    now[0] += LEASE_SECONDS - 1
    lease.renew()
    assert not lease.problem
    now[0] += LEASE_SECONDS
    other = take_lease(STATE, lambda: now[0])
    lease.renew()
    assert lease.problem == "another runner has taken the checkpoint over"
    lease.release()
    other.renew()
    assert not other.problem
    assert owner_of(store).renewed == now[0]


def test_a_lease_of_a_process_that_is_gone_is_free(store: MemoryFiles) -> None:
    take_lease(STATE, lambda: 100.0)
    gone = msgspec.structs.replace(owner_of(store), pid=1 << 30)
    store.files[f"{STATE}/{LEASE_FILE}"] = msgspec.json.encode(gone)
    assert take_lease(STATE, lambda: 101.0)
    elsewhere = msgspec.structs.replace(gone, host="another-machine")
    store.files[f"{STATE}/{LEASE_FILE}"] = msgspec.json.encode(elsewhere)
    with pytest.raises(PipelineError, match="of another-machine"):
        take_lease(STATE, lambda: 101.0)


def test_of_two_that_begin_at_once_one_has_the_lease(
    store: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MemoryFiles.write

    def write(self: MemoryFiles, uri: str, data: bytes, *, is_new: bool) -> None:
        monkeypatch.setattr(MemoryFiles, "write", real)
        take_lease(STATE, lambda: 100.0)
        real(self, uri, data, is_new=is_new)

    monkeypatch.setattr(MemoryFiles, "write", write)
    with pytest.raises(PipelineError, match="another runner has just started"):
        take_lease(STATE, lambda: 100.0)


def test_a_lease_from_ahead_of_the_clock_is_named(store: MemoryFiles) -> None:
    take_lease(STATE, lambda: 1_000_000.0)
    with pytest.raises(
        PipelineError, match=r"clock was 999000 s ahead of this one; .* remove .*lease"
    ):
        take_lease(STATE, lambda: 1000.0)


def test_an_owner_that_cannot_renew_stops_before_others_may_begin(store: MemoryFiles) -> None:
    now, passed = [100.0], [5.0]
    lease = take_lease(STATE, lambda: now[0], lambda: passed[0])
    store.is_away = True
    passed[0] += LEASE_SECONDS / 3
    lease.renew()
    assert not lease.problem
    # Somebody sets the clock back, and time passes all the same.
    now[0] -= 1_000_000
    passed[0] += LEASE_SECONDS / 3
    lease.renew()
    assert lease.problem == "the lock of the checkpoint could not be renewed: the store is away"


def test_without_spark_only_some_file_systems_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_active_context", lambda: None)
    for uri in ("viewfs://lake/state", "webhdfs://name/state"):
        with pytest.raises(PipelineError, match="cannot be read without Spark"):
            read_status(RemoteFolder(uri))
