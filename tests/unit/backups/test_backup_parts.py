"""The parts of a backup without a server: ranges, messages, rules, places and locks."""

from __future__ import annotations

import os
import random
from array import array
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.backups.backup_documents import BackupRecord, decode_backup, encode_backup
from tradewind.backups.backup_errors import BackupError, DamagedMessagesError
from tradewind.backups.backup_places import FolderPlace, open_backup_place
from tradewind.backups.backup_repository import BackupRepository
from tradewind.backups.keep_rules import KeepRules
from tradewind.backups.message_entries import EntrySelection, scan_entries
from tradewind.backups.repository_locks import RENEW_SECONDS, VALID_SECONDS, RepositoryLock
from tradewind.backups.restore_choice import RestoreChoice, renamed_config
from tradewind.backups.sequence_ranges import SequenceRanges
from tradewind.durations import SECOND_NS
from tradewind.store.backup.archive import append_entry
from tradewind.subjects import is_subset

# ---------------------------------------------------------------- sequences


@given(
    st.sets(st.integers(1, 60)),
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=5),
)
def test_ranges_are_the_set_of_their_sequences(
    sequences: set[int], questions: list[tuple[int, int]]
) -> None:
    ranges = SequenceRanges.of_sequences(sorted(sequences))
    assert {seq for first, last in ranges for seq in range(first, last + 1)} == sequences
    assert SequenceRanges.unpacked(ranges.packed()) == ranges
    for first, last in questions:
        wanted = {seq for seq in sequences if first <= seq <= last}
        assert ranges.count(first, last) == len(wanted)
        assert ranges.within(first, last) == SequenceRanges.of_sequences(sorted(wanted))


@given(st.binary(max_size=40))
def test_any_bytes_are_ranges_or_an_error(data: bytes) -> None:
    try:
        found = SequenceRanges.unpacked(data)
    except ValueError:
        return
    bounds = list(found.bounds)
    assert bounds == sorted(bounds)
    assert found.packed() == SequenceRanges.unpacked(found.packed()).packed()


def test_ranges_of_very_large_sequences_are_counted_in_no_time() -> None:
    ranges = SequenceRanges()
    ranges.add(2, 1 << 61)
    assert ranges.count(0, 1 << 62) == (1 << 61) - 1
    assert len(ranges.packed()) < 16


# ---------------------------------------------------------------- messages

SUBJECTS = ("a", "a.b", "a.b.c", "b.c", "b", "long.er.name")
PATTERNS = ("a", "a.*", "a.>", "*.c", ">", "*", "*.*.*", "b.>", "a.b.c", "long.>", "lo.>")
Messages = list[tuple[int, str, int, bytes, bytes]]


def messages(rng: random.Random, count: int) -> Messages:
    seq, found = 0, []
    for _ in range(count):
        seq += rng.choice((1, 1, 1, 2, 50))
        header = rng.choice((b"", b"NATS/1.0\r\nA: 1\r\n\r\n"))
        payload = rng.randbytes(rng.choice((0, 1, 200)))
        found.append((seq, rng.choice(SUBJECTS), rng.randrange(-5, 1000), header, payload))
    return found


def entries_of(found: Messages) -> bytes:
    target = bytearray()
    for seq, subject, time_ns, header, payload in found:
        append_entry(target, subject.encode(), time_ns, seq, header, payload)
    return bytes(target)


@pytest.mark.parametrize("seed", range(20))
def test_the_chosen_messages_are_those_a_loop_would_choose(seed: int) -> None:
    rng = random.Random(seed)
    found = messages(rng, rng.randrange(60))
    last = found[-1][0] if found else 1
    removed = {rng.randrange(1, last + 1) for _ in range(rng.choice((0, 5, 40)))}
    patterns = rng.sample(PATTERNS, rng.randrange(3))
    since, until = sorted((rng.randrange(-10, 1000), rng.randrange(-10, 1100)))
    old, new = rng.choice(((b"", b""), (b"a.", b"renamed.")))
    selection = EntrySelection(
        SequenceRanges.of_sequences(sorted(removed)).bounds,
        tuple(pattern.encode() for pattern in patterns),
        since,
        until,
        old,
        new,
    )
    wanted = [
        (seq, subject, time_ns, header, payload)
        for seq, subject, time_ns, header, payload in found
        if seq not in removed
        and since <= time_ns < until
        and (not patterns or any(is_subset(subject, pattern) for pattern in patterns))
    ]
    renamed = [
        (seq, subject.replace("a.", "renamed.", 1) if old and subject.startswith("a.") else subject,
         *rest)
        for seq, subject, *rest in wanted
    ]  # fmt: skip
    data = entries_of(found)
    half = scan_entries(data, 0, max(len(data) // 2, 1), 0)[0]
    assert selection.select(data[:half]) + selection.select(data[half:]) == entries_of(renamed)
    assert selection.count == len(wanted)


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_counted_up_to_where_the_data_ends(seed: int) -> None:
    rng = random.Random(seed)
    found = messages(rng, 30)
    data = entries_of(found)
    for cut in range(len(data) + 1):
        end, count, first, last, first_ns, last_ns = scan_entries(data[:cut], 0, 1 << 30, 0)
        assert data[:end] == entries_of(found[:count])
        assert end <= cut
        if count:
            times = [message[2] for message in found[:count]]
            assert (first, last) == (found[0][0], found[count - 1][0])
            assert (first_ns, last_ns) == (min(times), max(times))
    assert count == len(found)


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_an_error(data: bytes) -> None:
    try:
        end = scan_entries(data, 0, 1 << 30, 0)[0]
    except DamagedMessagesError:
        return
    assert end <= len(data)
    EntrySelection(array("Q"), (b"a.>",), -(1 << 63), (1 << 63) - 1).select(data[:end])


def test_a_message_out_of_order_is_named() -> None:
    data = entries_of([(5, "a", 0, b"", b""), (5, "a", 0, b"", b"")])
    with pytest.raises(DamagedMessagesError, match="sequence 5 is out of order"):
        scan_entries(data, 0, 1 << 30, 0)


# ---------------------------------------------------------------- rules


def hourly(count: int) -> list[tuple[str, str]]:
    start = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    times = [start + timedelta(hours=hour) for hour in range(count)]
    return [(f"{time:%d.%H}", f"{time:%Y-%m-%dT%H:%M:%SZ}") for time in times]


def test_the_newest_backup_of_each_period_is_kept() -> None:
    backups = hourly(24 * 10)
    rules = KeepRules(last=1, hourly=3, daily=3, weekly=2)
    # The 4th and the 11th of January 2026 are Sundays.
    assert rules.kept(backups) == {"10.23", "10.22", "10.21", "09.23", "08.23", "04.23"}


@given(
    st.lists(st.integers(0, 5000), max_size=30, unique=True),
    st.builds(
        KeepRules,
        last=st.integers(0, 4),
        hourly=st.integers(0, 4),
        daily=st.integers(0, 4),
        weekly=st.integers(0, 4),
    ),
)
def test_pruning_twice_removes_nothing_more(hours: list[int], rules: KeepRules) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    backups = [
        (str(hour), f"{start + timedelta(minutes=30 * hour):%Y-%m-%dT%H:%M:%SZ}")
        for hour in sorted(hours)
    ]
    kept = rules.kept(backups)
    again = rules.kept([each for each in backups if each[0] in kept])
    assert again == kept
    assert len(kept) <= rules.last + rules.hourly + rules.daily + rules.weekly
    if backups and any(msgspec.structs.astuple(rules)):
        assert backups[-1][0] in kept


def test_no_rule_at_all_is_refused() -> None:
    with pytest.raises(BackupError, match="all backups would be removed"):
        KeepRules().check()


# ---------------------------------------------------------------- names


def test_a_bucket_with_a_new_name_gets_its_subjects() -> None:
    config = {"name": "KV_old", "subjects": ["$KV.old.>"], "max_msgs_per_subject": 1}
    assert renamed_config(config, "KV_new")["subjects"] == ["$KV.new.>"]


def test_a_copy_takes_nothing_from_where_the_original_does() -> None:
    config = {"name": "A", "mirror": {"name": "B"}, "sources": [{"name": "C"}], "max_age": 5}
    assert renamed_config(config, "D") == {"name": "D", "subjects": ["D"], "max_age": 5}


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (RestoreChoice(subjects=("a..b",)), "subject must be like"),
        (RestoreChoice(renames={"A": "x/y"}), "cannot be the name of a stream"),
        (RestoreChoice(renames={"KV_a": "b"}), "a bucket needs a name that begins like"),
        (RestoreChoice(since_ns=5, until_ns=5), "since must be before"),
    ],
)
def test_an_invalid_choice_is_refused(choice: RestoreChoice, text: str) -> None:
    with pytest.raises(BackupError, match=text):
        choice.check()


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (RestoreChoice(streams=("C*",)), "no stream 'C\\*'"),
        (RestoreChoice(renames={"X": "Y"}), "no stream 'X' to rename"),
        (RestoreChoice(renames={"A": "B"}), "two streams would get the name 'B'"),
    ],
)
def test_names_that_cannot_be_restored_are_refused(choice: RestoreChoice, text: str) -> None:
    with pytest.raises(BackupError, match=text):
        choice.names(["A", "B"])


# ---------------------------------------------------------------- places


@pytest.fixture(params=["folder", "file", "memory"])
def place_text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "folder": str(tmp_path / "deep" / "place"),
        "file": f"file://{tmp_path}/place",
        "memory": f"memory://{tmp_path.name}/place",
    }[request.param]


def test_files_of_a_place_are_written_listed_and_removed(place_text: str) -> None:
    place = open_backup_place(place_text)
    assert place.read("objects/ab/x") is None
    assert place.size("objects/ab/x") is None
    assert place.sizes("objects") == {}
    place.write("objects/ab/x", b"12345")
    place.write("objects/ab/x", b"123")
    place.write("other/y", b"")
    assert place.read("objects/ab/x") == b"123"
    assert place.size("objects/ab/x") == 3
    assert place.sizes("objects") == {"objects/ab/x": 3}
    place.remove("objects/ab/x")
    place.remove("objects/ab/x")
    assert place.sizes("objects") == {}


def test_what_a_killed_writer_has_left_is_no_file_and_is_removed(tmp_path: Path) -> None:
    place = open_backup_place(str(tmp_path))
    place.write("objects/ab/x", b"1")
    left = tmp_path / "objects" / "ab" / ".x.0123abcd"
    left.write_bytes(b"half")
    assert place.sizes("objects") == {"objects/ab/x": 1}
    place.remove_unfinished()
    assert not left.exists()
    assert place.sizes("objects") == {"objects/ab/x": 1}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "must be a folder or a URL"),
        ("nosuch://bucket/path", "nosuch"),
        ("/proc/self/cmdline/x", "Not a directory"),
    ],
)
def test_a_place_that_cannot_be_is_an_error_of_one_line(text: str, error: str) -> None:
    with pytest.raises(BackupError, match=error) as caught:
        open_backup_place(text).write("a", b"")
    assert "\n" not in str(caught.value)


def test_a_login_in_a_url_is_not_shown() -> None:
    assert open_backup_place("memory://user:secret@host/path").text == "memory://host/path"


# ---------------------------------------------------------------- documents


def record() -> BackupRecord:
    return BackupRecord(
        format=1, id="x", started="", cut_at="", finished="", cut="stream", server="", streams=[]
    )


def test_every_changed_byte_of_a_backup_is_noticed() -> None:
    content = encode_backup(record())
    assert decode_backup(content, "f") == record()
    for place in range(len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        with pytest.raises(BackupError, match=r"^f: "):
            decode_backup(bytes(damaged), "f")


def test_a_backup_of_a_newer_version_is_refused() -> None:
    content = encode_backup(msgspec.structs.replace(record(), format=2))
    with pytest.raises(BackupError, match="format 2; this version reads 1"):
        decode_backup(content, "f")


def test_an_object_cut_off_by_a_crash_is_written_again(tmp_path: Path) -> None:
    repository = BackupRepository(open_backup_place(str(tmp_path)))
    digest = repository.put(b"content")
    path = tmp_path / "objects" / digest[:2] / digest
    path.write_bytes(b"con")
    with pytest.raises(BackupError, match=f"{digest}: damaged.*the thing"):
        repository.get(digest, "the thing")
    repository = BackupRepository(open_backup_place(str(tmp_path)))
    repository.put(b"content")
    assert repository.get(digest, "the thing") == b"content"


# ---------------------------------------------------------------- locks


class Time:
    ns = 1_000_000 * SECOND_NS

    def __call__(self) -> int:
        return self.ns


def test_writers_work_side_by_side_and_a_prune_waits_for_them(tmp_path: Path) -> None:
    place = open_backup_place(str(tmp_path))
    with (
        RepositoryLock(place, "create"),
        RepositoryLock(place, "create"),
        pytest.raises(BackupError, match=f"process {os.getpid()} on .* is making a backup"),
    ):
        RepositoryLock(place, "prune").__enter__()
    with RepositoryLock(place, "prune"):
        for kind in ("create", "prune"):
            with pytest.raises(BackupError, match="is removing backups"):
                RepositoryLock(place, kind).__enter__()  # type: ignore[arg-type]
    assert place.sizes("locks") == {}


def test_the_lock_of_a_dead_process_of_this_machine_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_backup_place(str(tmp_path))
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: child)
        RepositoryLock(place, "create").__enter__()
    with RepositoryLock(place, "prune"):
        assert len(place.sizes("locks")) == 1


def test_a_lock_of_another_machine_ends_after_its_time_and_its_owner_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, time = open_backup_place(str(tmp_path)), Time()
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "far")
        writer = RepositoryLock(place, "create", time)
        writer.__enter__()
        time.ns += (RENEW_SECONDS + 1) * SECOND_NS
        writer.renew()
        time.ns += (VALID_SECONDS - 1) * SECOND_NS
    with pytest.raises(BackupError, match="on far is making a backup"):
        RepositoryLock(place, "prune", time).__enter__()
    time.ns += 2 * SECOND_NS
    with RepositoryLock(place, "prune", time):
        pass
    with pytest.raises(BackupError, match="thought dead"):
        writer.renew()
    with pytest.raises(BackupError, match="thought dead"):
        writer.check()


class SyncedFolder(FolderPlace):
    """A folder that notes what is durable."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.changes: list[str] = []

    def write(self, name: str, content: bytes) -> None:
        super().write(name, content)
        self.changes.append(name)

    def write_later(self, name: str, content: bytes) -> None:
        super().write_later(name, content)
        self.changes.append("later")

    def keep(self, name: str) -> None:
        super().keep(name)
        self.changes.append("keep")

    def settle(self) -> None:
        super().settle()
        self.changes.append("settle")


def test_a_backup_is_written_after_everything_that_it_needs_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    for name in ("sync_path", "sync_folder"):
        monkeypatch.setattr(
            f"tradewind.backups.backup_places.{name}", lambda path: synced.append(Path(path).name)
        )
    place = SyncedFolder(tmp_path)
    repository = BackupRepository(place)
    digest = repository.put(b"new")
    repository.put(b"new")
    # Another one, which may have been interrupted before it was durable.
    other = BackupRepository(FolderPlace(tmp_path)).put(b"of another")
    repository.put(b"of another")
    repository.save(record())
    assert place.changes == ["later", "keep", "settle", "backups/x.json"]
    assert {digest, other, digest[:2], other[:2]} <= set(synced)


def test_an_object_of_the_right_size_with_other_bytes_is_written_again(tmp_path: Path) -> None:
    digest = BackupRepository(open_backup_place(str(tmp_path))).put(b"content")
    path = tmp_path / "objects" / digest[:2] / digest
    path.write_bytes(bytes(7))
    repository = BackupRepository(open_backup_place(str(tmp_path)))
    repository.put(b"content")
    assert repository.get(digest, "the thing") == b"content"
