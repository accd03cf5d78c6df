"""Random work on the disks: the simulated one looks like the real one, and a power failure takes
only what naive rules, written here without a look at its code, allow it to take.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import some
from tradewind.errors import StoreError
from tradewind.store.files.disk import Disk, DiskError, OsDisk
from tradewind.testing.disk_state import SECTOR_BYTES
from tradewind.testing.fake_disk import SimulatedDisk

CASES = some(40, 2000)
pytestmark = pytest.mark.timeout(900)
ROOT = "/disk"
SEEDS = range(8)

# --- the same work on both disks -----------------------------------------------------------------

names = st.sampled_from(["a", "b", "a/a", "a/b", "b/a", "a/b/c", "a/a/a/a", "", "a/../b", "../x"])
offsets = st.integers(-1, 3000)
blobs = st.binary(max_size=20) | st.integers(0, 1500).map(lambda size: (b"%d" % size * size)[:size])
calls = st.one_of(
    st.tuples(st.just("create"), names),
    st.tuples(st.just("replace"), names),
    st.tuples(st.just("write"), names, blobs, offsets),
    st.tuples(st.just("read"), names, offsets, offsets),
    st.tuples(st.just("truncate"), names, offsets),
    st.tuples(st.just("map"), names),
    st.tuples(st.just("sync"), names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("remove_tree"), names),
    st.tuples(st.just("make_directory"), names),
    st.tuples(st.just("make_directory"), names),
    st.tuples(st.just("list_directory"), names),
    st.tuples(st.just("exists"), names),
    st.tuples(st.just("is_directory"), names),
    st.tuples(st.just("sync_directory"), names),
    st.tuples(st.just("read_file"), names),
    st.tuples(st.just("write_file_atomically"), names, blobs),
)


def perform(disk: Disk, call: tuple[str, ...]) -> object:
    """What a call gives: its value, or what its error says apart from the root."""
    operation, name, *rest = call
    path = f"{disk.root}/{name}"
    try:
        if operation == "rename":
            return disk.rename(path, f"{disk.root}/{rest[0]}")
        if operation in ("create", "replace"):
            return disk.create(path, replace=operation == "replace").close()
        if operation in ("write", "read", "truncate", "map", "sync"):
            with disk.open(path, writes=True) as file:
                value = getattr(file, operation)(*rest)
                return bytes(value) if operation == "map" else value, file.size
        return getattr(disk, operation)(path, *rest)
    except DiskError as error:
        return error.errno, error.operation, str(error).replace(disk.root, ""), type(error)
    except StoreError as error:
        return str(error).replace(disk.root, "")


@settings(max_examples=2 * CASES, deadline=None)
@given(st.lists(calls, max_size=40))
def test_both_disks_give_the_same_answers_and_the_same_tree(work: list[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real, simulated = OsDisk(folder), SimulatedDisk()
        for call in work:
            assert perform(simulated, call) == perform(real, call), call
        seen = SimulatedDisk()
        seen.load_tree(folder)
        assert simulated.snapshot_tree() == seen.snapshot_tree()
        assert simulated.crash_keeping_unsynced().snapshot_tree() == seen.snapshot_tree()
        sizes = [len(data) for data in seen.snapshot_tree().values() if data is not None]
        assert simulated.tree.used_bytes == sum(sizes)
        assert simulated.open_files == 0


# --- bytes after a power failure -----------------------------------------------------------------


class NaiveFile:
    """All that a file may be after a power failure: any size that it had since its last sync or
    passed while growing, and in each place any byte that it had there since then.
    """

    def __init__(self) -> None:
        self.now = b""
        self.sync()

    def sync(self) -> None:
        self.past = [self.now]
        self.sizes = {len(self.now)}

    def write(self, data: bytes, place: int) -> None:
        start = self.now[:place].ljust(place, b"\0") + data
        self.sizes.update(range(len(self.now), len(start)))
        self._become(start + self.now[len(start) :])

    def truncate(self, size: int) -> None:
        self._become(self.now[:size].ljust(size, b"\0"))

    def _become(self, content: bytes) -> None:
        self.now = content
        self.past.append(content)
        self.sizes.add(len(content))

    def allows(self, content: bytes) -> bool:
        # A byte that was outside of the file at some moment may be a hole.
        shortest = min(map(len, self.past))
        longest = max(map(len, self.past))
        versions = [version.ljust(longest, b"\0") for version in self.past]
        return len(content) in self.sizes and all(
            byte in values or (byte == 0 and place >= shortest)
            for place, (byte, *values) in enumerate(zip(content, *versions, strict=False))
        )


file_calls = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), blobs, st.integers(0, 2000)),
    st.tuples(st.just("append"), st.integers(0, 2), blobs, st.just(0)),
    st.tuples(st.just("append"), st.integers(0, 2), blobs, st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 2), st.just(b""), st.integers(0, 2000)),
    st.tuples(st.just("sync"), st.integers(0, 2), st.just(b""), st.just(0)),
)


@settings(max_examples=CASES, deadline=None)
@given(st.lists(file_calls, max_size=20), st.integers(0, 1 << 32), st.integers(0, 700))
def test_synced_bytes_survive_and_no_byte_is_invented(
    work: list[tuple[str, int, bytes, int]], seed: int, short_write_bytes: int
) -> None:
    disk = SimulatedDisk()
    files = [disk.create(f"{ROOT}/{number}") for number in range(3)]
    disk.sync_directory(ROOT)
    disk.short_write_bytes = short_write_bytes
    naive = [NaiveFile() for _ in files]
    for operation, number, data, place in work:
        file, model = files[number], naive[number]
        if operation == "truncate":
            file.truncate(place)
            model.truncate(place)
        elif operation == "sync":
            file.sync()
            model.sync()
        elif data:
            place = len(model.now) if operation == "append" else place
            file.write(data, place)
            model.write(data, place)
    for chance in SEEDS:
        for after in (disk.crash(seed + chance), disk.crash_keeping_steps(seed % 30 + chance)):
            tree = after.snapshot_tree()
            assert sorted(tree) == ["0", "1", "2"]
            for number, model in enumerate(naive):
                content = tree[str(number)]
                assert content is not None
                assert model.allows(content)
    lost = disk.crash_losing_unsynced().snapshot_tree()
    assert [lost[str(number)] for number in range(3)] == [model.past[0] for model in naive]


@settings(max_examples=CASES, deadline=None)
@given(st.lists(st.integers(1, 700), min_size=1, max_size=12), st.integers(0, 1 << 32))
def test_each_sector_of_an_appended_file_is_as_it_was_at_some_moment(
    sizes: list[int], seed: int
) -> None:
    disk = SimulatedDisk()
    file = disk.create(f"{ROOT}/0")
    disk.sync_directory(ROOT)
    written = b""
    for number, size in enumerate(sizes, 1):
        file.write(bytes([number]) * size, len(written))
        written += bytes([number]) * size
    for chance in SEEDS:
        content = disk.crash(seed + chance).snapshot_tree()["0"]
        assert content is not None
        for start in range(0, len(content), SECTOR_BYTES):
            sector = content[start : start + SECTOR_BYTES]
            arrived = sector.rstrip(b"\0")
            assert written[start : start + len(arrived)] == arrived


# --- names after a power failure -----------------------------------------------------------------

Place = tuple[str, str] | None  # the id of a folder and a name in it; None is nowhere


@dataclass
class Thing:
    """A file or a folder, known by the id in its content or in its file `id`.

    `places`: the last one that is sure, and all since. What touched a synced folder is sure.
    """

    places: list[Place]
    is_folder: bool


class NaiveNames:
    """Names by brute force. The root is the folder with the id "root"."""

    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}

    def at(self, place: Place) -> str | None:
        return next((key for key, thing in self.things.items() if thing.places[-1] == place), None)

    def inside(self, folder: str) -> list[str]:
        return [
            key for key, thing in self.things.items() if (thing.places[-1] or ("",))[0] == folder
        ]

    def holds(self, folder: str, other: str) -> bool:
        """Whether `other` is `folder` or somewhere below it."""
        while other != folder and other != "root":
            place = self.things[other].places[-1]
            assert place is not None
            other = place[0]
        return other == folder

    def path(self, key: str) -> str:
        if key == "root":
            return ROOT
        place = self.things[key].places[-1]
        assert place is not None
        return f"{self.path(place[0])}/{place[1]}"

    def folders(self) -> list[str]:
        live = [key for key, thing in self.things.items() if thing.is_folder and thing.places[-1]]
        return ["root", *live]

    def sync(self, folder: str) -> None:
        for thing in self.things.values():
            touched = 0
            for number in range(1, len(thing.places)):
                for place in thing.places[number - 1 : number + 1]:
                    if place is not None and place[0] == folder:
                        touched = number
            del thing.places[:touched]

    def may_be_absent(self, key: str) -> bool:
        """Either it may be nowhere itself, or a folder that it may be in may be absent."""
        if key == "root":
            return False
        places = self.things[key].places
        return any(place is None or self.may_be_absent(place[0]) for place in places)


def work_on_names(data: st.DataObject, disk: SimulatedDisk, model: NaiveNames, serial: int) -> None:
    """One random change of names, done to the disk and to the model."""
    folder = data.draw(st.sampled_from(model.folders()))
    name = data.draw(st.sampled_from("xyz"))
    path = f"{model.path(folder)}/{name}"
    here = model.at((folder, name))
    operation = data.draw(st.sampled_from(["file", "folder", "rename", "rename", "remove", "sync"]))
    if operation == "sync":
        disk.sync_directory(model.path(folder))
        model.sync(folder)
    elif operation == "remove":
        disk.remove_tree(path)
        forget = [here] if here else []
        for key in forget:
            forget += model.inside(key)
        for key in forget:
            model.things[key].places.append(None)
    elif operation == "rename" and here:
        target = data.draw(st.sampled_from(model.folders()))
        new_name = data.draw(st.sampled_from("xyz"))
        old = model.at((target, new_name))
        moved = model.things[here]
        if old == here or model.holds(here, target):
            return
        if old and (moved.is_folder or model.things[old].is_folder):
            return
        disk.rename(path, f"{model.path(target)}/{new_name}")
        if old:
            model.things[old].places.append(None)
        moved.places.append((target, new_name))
    elif not here and operation in ("file", "folder"):
        key = f"{operation}-{serial}"
        inner = path
        if operation == "folder":
            disk.make_directory(path)
            inner = f"{path}/id"
        with disk.create(inner) as file:
            file.write(key.encode(), 0)
            file.sync()
        if operation == "folder":
            disk.sync_directory(path)
        model.things[key] = Thing([None, (folder, name)], is_folder=operation == "folder")


def things_on(disk: SimulatedDisk) -> list[tuple[str, tuple[str, str]]]:
    """Ids and places as found; a folder's id is in its file `id`."""
    found = []

    def walk(path: str, folder: str) -> None:
        for name in disk.list_directory(path):
            inner = f"{path}/{name}"
            if disk.is_directory(inner):
                key = disk.read_file(f"{inner}/id").decode() if disk.exists(f"{inner}/id") else ""
                found.append((key, (folder, name)))
                walk(inner, key)
            elif name != "id":
                found.append((disk.read_file(inner).decode(), (folder, name)))

    walk(ROOT, "root")
    return found


@settings(max_examples=CASES, deadline=None)
@given(st.data(), st.integers(0, 1 << 32))
def test_synced_names_survive_and_each_thing_is_in_one_of_its_places(
    data: st.DataObject, seed: int
) -> None:
    disk, model = SimulatedDisk(), NaiveNames()
    for serial in range(data.draw(st.integers(1, 25))):
        work_on_names(data, disk, model, serial)
    exact = {key: thing.places[-1] for key, thing in model.things.items() if thing.places[-1]}
    assert dict(things_on(disk)) == exact
    assert dict(things_on(disk.crash_keeping_unsynced())) == exact
    for chance in SEEDS:
        for after in (
            disk.crash(seed + chance),
            disk.crash_keeping_steps(seed % 40 + chance),
            disk.crash_losing_unsynced(),
        ):
            found = [thing for thing in things_on(after) if thing[0]]
            keys = [key for key, _ in found]
            assert len(set(keys)) == len(keys), "one thing in two places"
            for key, (folder, name) in found:
                # A folder without an id is half removed: which one it is cannot be told.
                places = [place for place in model.things[key].places if place is not None]
                assert name in [other for known, other in places if folder in ("", known)]
            for key in model.things:
                assert key in keys or model.may_be_absent(key), key


@settings(max_examples=CASES // 4, deadline=None)
@given(st.data(), st.integers(0, 1 << 32))
def test_a_disk_after_a_power_failure_is_durable_as_it_is(data: st.DataObject, seed: int) -> None:
    disk, model = SimulatedDisk(), NaiveNames()
    for serial in range(data.draw(st.integers(1, 15))):
        work_on_names(data, disk, model, serial)
    after = disk.crash(seed)
    assert after.unsynced_steps() == []
    for chance in SEEDS:
        assert after.crash(chance).snapshot_tree() == after.snapshot_tree()
