"""A disk that refuses: the store says so, stops changing, keeps on reading and loses nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from store_verdict import Examiner, content_of, judge
from store_workloads import (
    FOLDER,
    Ledger,
    Run,
    Step,
    Workload,
    open_workload,
    random_workload,
    scripted_workloads,
)
from tradewind.errors import StoreError
from tradewind.store.contract import StoreLimits
from tradewind.store.files.disk import Operation
from tradewind.store.folder.filestore import FileStore, ReadOnlyError
from tradewind.testing.fake_disk import Fault, SimulatedDisk

CHANGING: tuple[Operation, ...] = ("write", "sync", "sync_directory", "create", "rename", "remove")
READING: tuple[Operation, ...] = ("open", "read", "map", "size", "list_directory", "exists")
FOR_EVER = 1 << 30
# All files but copies of blocks, which are never needed: a full disk only puts them off.
NO_COPIES = "*[!p]"
# Nor what is said of the sequences beside the blocks: that waits for room without a refusal.
MESSAGES = "*[!pq]"
# Faults of different calls leave equal disks most of the time.
EXAMINER = Examiner()


def without_reopening(workload: Workload) -> Workload:
    """Faults while opening and closing have tests of their own."""
    return replace(workload, steps=tuple(step for step in workload.steps if step[0] != "reopen"))


WORKLOADS = [without_reopening(workload) for workload in scripted_workloads()]
WORKLOADS += [without_reopening(random_workload(seed)) for seed in range(1000, 1002)]
by_name = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


def started(workload: Workload, seed: int = 0) -> Run:
    run = Run(workload, SimulatedDisk(seed))
    run.start()
    return run


def calls_of(workload: Workload, operation: Operation, paths: str = "*") -> int:
    """How many chances to fail there are after the start."""
    run = started(workload)
    watch = run.disk.fail(operation, paths, nth=FOR_EVER)
    for step in workload.steps:
        run.do(step)
    return watch.seen


def first_error(run: Run) -> StoreError | None:
    """Run until the store complains; any other exception is a bug and comes through."""
    for step in run.workload.steps:
        try:
            run.do(step)
        except StoreError as error:
            return error
    return None


def changes_of(store: FileStore) -> Iterator[Callable[[], object]]:
    yield lambda: store.table.store(b"a", b"", b"refused", 1)
    yield lambda: store.table.skip(store.table.last_seq + 5, 1)
    yield lambda: store.table.purge()
    yield lambda: store.table.purge(b"a", keep=1)
    yield lambda: store.table.compact(store.table.last_seq + 1)
    yield lambda: store.table.remove(max(1, store.table.first_seq))
    yield lambda: store.flush()


def check_read_only(run: Run) -> None:
    """It names the reason, refuses every change without a trace, and still gives out messages."""
    store = run.store
    assert store.failure is not None
    with pytest.raises(ReadOnlyError) as refused:
        store.check_writable()
    assert str(store.failure) in str(refused.value)
    before, last_seq = content_of(store), store.table.last_seq
    for change in changes_of(store):
        with pytest.raises(ReadOnlyError):
            change()
    assert content_of(store) == before
    assert store.table.last_seq == last_seq
    for seq, message in run.ledger.messages.items():
        if seq <= run.ledger.acknowledged_seq and seq not in run.ledger.gone:
            assert store.table.get(seq) == message
    if store.committing is not None:  # files are not closed before the worker is done with them
        store.drop_commit(store.committing)
    store.close()


def check_restarts(run: Run) -> None:
    """Nothing promised is lost, whether only the server ends or the power fails too."""
    disk = run.disk
    disk.clear_faults()
    disks = [disk.crash_losing_unsynced(), disk.crash_keeping_unsynced()]
    disks += [disk.crash(seed) for seed in range(3)]
    for crashed in disks:
        outcome = EXAMINER.outcome(crashed, run.workload, run.ledger.now_ns)
        assert not judge(run.ledger, outcome)


@by_name
@pytest.mark.parametrize("operation", CHANGING)
@pytest.mark.parametrize("times", [1, FOR_EVER], ids=["once", "for ever"])
def test_first_failed_call_makes_the_store_read_only(
    workload: Workload, operation: Operation, times: int
) -> None:
    paths = NO_COPIES if operation == "remove" else "*"
    for nth in range(1, calls_of(workload, operation, paths) + 1):
        run = started(workload, seed=nth)
        run.disk.fail(operation, paths, nth, errno.EIO, times=times, after_bytes=7 * nth % 60)
        error = first_error(run)
        assert error is not None, f"call {nth} failed and nobody noticed"
        assert "EIO" in str(run.store.failure)
        check_read_only(run)
        check_restarts(run)


@by_name
@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_full_disk_found_by_a_sync_cannot_be_resumed(
    workload: Workload, operation: Operation
) -> None:
    """What the kernel could not write is gone; only the next start knows what is on the disk."""
    for nth in range(1, calls_of(workload, operation, NO_COPIES) + 1):
        run = started(workload, seed=nth)
        run.disk.fail(operation, NO_COPIES, nth, errno.ENOSPC)
        assert first_error(run) is not None
        assert not run.store.resume()
        check_read_only(run)
        check_restarts(run)


def remembered(ledger: Ledger) -> Ledger:
    return replace(
        ledger,
        messages=dict(ledger.messages),
        live=dict(ledger.live),
        gone=dict(ledger.gone),
    )


def settle(run: Run, before: Ledger) -> None:
    """After a refused operation: it has happened, or not, or for some of its messages."""
    ledger, found = run.ledger, content_of(run.store)
    assert set(found) <= set(before.live) | set(ledger.live)
    assert set(found) >= set(before.live) & set(ledger.live)
    assert all(message == ledger.messages[seq] for seq, message in found.items())
    assert before.last_seq <= run.store.table.last_seq <= ledger.last_seq
    run.store.verify()
    for seq in [seq for seq in ledger.gone if seq in found or seq > run.store.table.last_seq]:
        del ledger.gone[seq]
    ledger.live = found
    ledger.last_seq = run.store.table.last_seq
    ledger.messages = {s: m for s, m in ledger.messages.items() if s <= ledger.last_seq}


def do_until_it_works(run: Run, step: Step, make_room: Callable[[], object]) -> int:
    """Do a step on a disk that may be full; gives how often it was refused."""
    before = remembered(run.ledger)
    try:
        run.do(step)
    except StoreError:
        assert "ENOSPC" in str(run.store.failure)
        with pytest.raises(ReadOnlyError):
            run.store.check_writable()
        make_room()
        assert run.store.resume()
        run.store.check_writable()
        settle(run, before)
        return 1
    return 0


@by_name
@pytest.mark.parametrize("operation", ["write", "create"])
def test_store_goes_on_when_a_full_disk_has_room_again(
    workload: Workload, operation: Operation
) -> None:
    for nth in range(1, calls_of(workload, operation, MESSAGES) + 1):
        run = started(workload, seed=nth)
        fault = run.disk.fail(
            operation, MESSAGES, nth, errno.ENOSPC, after_bytes=11 * nth % 60, times=1
        )
        refused = 0
        for step in workload.steps:
            refused += do_until_it_works(run, step, lambda: None)
        assert refused == fault.hits == 1
        run.do_commit()
        run.compare()
        assert run.store.table.synced_seq == run.store.table.last_seq
        crashed = run.disk.crash_losing_unsynced()
        assert not judge(run.ledger, EXAMINER.outcome(crashed, workload, run.ledger.now_ns))


@by_name
@pytest.mark.parametrize("operation", ["write", "create", "sync"])
def test_copies_of_blocks_wait_until_there_is_room(
    workload: Workload, operation: Operation
) -> None:
    for nth in range(1, calls_of(workload, operation, "*.tmp") + 1):
        run = started(workload, seed=nth)
        run.disk.fail(operation, "*.tmp", nth, errno.ENOSPC)
        assert first_error(run) is None
        run.store.check_writable()
        run.do_commit()
        run.compare()
        crashed = run.disk.crash_losing_unsynced()
        problems = judge(run.ledger, EXAMINER.outcome(crashed, workload, run.ledger.now_ns))
        # To erase takes room: that waits too, and the messages are removed all the same.
        assert not [problem for problem in problems if "is not erased" not in problem]


@by_name
def test_resume_of_a_disk_that_is_still_full_changes_nothing(workload: Workload) -> None:
    run = started(workload)
    run.disk.capacity_bytes = 0
    error = first_error(run)
    assert error is not None
    for _ in range(3):
        assert not run.store.resume()
    check_read_only(run)
    run.disk.capacity_bytes = None
    check_restarts(run)


@pytest.mark.parametrize("room_bytes", range(0, 1500, 37))
def test_disk_that_fills_up_loses_nothing_and_goes_on(room_bytes: int) -> None:
    """The disk has so much room, then none, then all: the parts of a record may be written."""
    for workload in WORKLOADS[:4]:
        run = started(workload)
        run.disk.capacity_bytes = room_bytes

        def make_room(disk: SimulatedDisk = run.disk) -> None:
            disk.capacity_bytes = None

        for step in workload.steps:
            do_until_it_works(run, step, make_room)
        run.do_commit()
        run.compare()
        check_restarts(run)


# --- opening, reading and closing ----------------------------------------------------------------


def filled_disk(limits: StoreLimits, *, closed: bool) -> tuple[Run, Workload]:
    steps = random_workload(77, 60).steps
    workload = Workload("filled", tuple(s for s in steps if s[0] != "expire"), limits, 300)
    run = started(without_reopening(workload))
    for step in run.workload.steps:
        run.do(step)
    run.do_commit()
    if closed:
        run.store.close()
    return run, workload


def opened_in_spite_of(run: Run, fault: Fault) -> StoreError | None:
    """Open a copy of the disk where one call fails; then, as nothing else is wrong, once more."""
    disk = run.disk
    try:
        store, _ = open_workload(disk, run.workload, run.ledger.now_ns)
    except StoreError as error:
        return error
    finally:
        disk.clear_faults()
    if not fault.hits:
        store.close()
    return None


@pytest.mark.parametrize("closed", [True, False], ids=["index.db", "blocks"])
@pytest.mark.parametrize("operation", [*READING, *CHANGING])
def test_failure_while_opening_is_an_error_and_harms_nothing(
    operation: Operation, closed: bool
) -> None:
    refused = 0
    for nth in range(1, 60):
        run, workload = filled_disk(StoreLimits(), closed=closed)
        fault = run.disk.fail(operation, nth=nth)
        error = opened_in_spite_of(run, fault)
        if not fault.hits:
            break
        refused += error is not None
        again, report = open_workload(run.disk, workload, run.ledger.now_ns)
        assert report.is_clean
        assert content_of(again) == run.ledger.live
        assert again.table.last_seq == run.ledger.last_seq
        again.verify()
    if operation in ("open", "list_directory", "exists"):
        assert refused, "absence was guessed where it could not be known"


@pytest.mark.parametrize("operation", ["read", "map"])
def test_failed_read_is_an_error_of_that_read_alone(operation: Operation) -> None:
    run, workload = filled_disk(StoreLimits(), closed=True)
    for seq, message in run.ledger.live.items():
        store, _ = open_workload(run.disk, workload, run.ledger.now_ns)
        fault = run.disk.fail(operation, "*.blk")
        try:
            assert store.table.get(seq) == message
        except StoreError:
            assert fault.hits
        run.disk.clear_faults()
        assert store.table.get(seq) == message
        assert store.failure is None


@pytest.mark.parametrize("operation", CHANGING)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_failure_while_closing_loses_nothing(operation: Operation, error: int) -> None:
    for nth in range(1, 10):
        run, _ = filled_disk(StoreLimits(msgs_max=20), closed=False)
        run.do(("store", b"a", b"", b"one more"))
        fault = run.disk.fail(operation, nth=nth, error=error)
        try:
            run.store.close()
        except StoreError:
            assert fault.hits
        else:
            run.ledger.promise_all()
        check_restarts(run)
        if not fault.hits:
            return
    raise AssertionError("closing takes more calls than expected")


def test_error_names_the_file_the_call_and_the_reason() -> None:
    run = started(WORKLOADS[0])
    run.disk.fail("write", f"{FOLDER}/msgs/1.blk")
    assert first_error(run) is not None
    with pytest.raises(ReadOnlyError) as refused:
        run.store.check_writable()
    text = str(refused.value)
    assert text.startswith("stream 'S' is read-only: ")
    assert f"{FOLDER}/msgs/1.blk: write failed: Input/output error (EIO)" in text
