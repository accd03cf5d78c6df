"""The reader of tars against Python's: well-formed ones are read alike, damaged ones refused."""

from __future__ import annotations

import io
import random
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from tar_kit import BLOCK, record, summed, tar_of
from thoroughness import some
from tradewind.store.backup.archive import ArchiveError
from tradewind.store.backup.tar_reader import TarReader

MUTATIONS = some(3000, 400_000)
Members = list[tuple[str, bytes]]

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=120
)
paths = st.builds("/".join, st.lists(names, min_size=1, max_size=3))
contents = st.binary(max_size=40) | st.integers(0, 2000).map(bytes)


class Collected:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.members: Members = []

    def begin(self, name: str, size: int) -> None:
        self.members.append((name, b""))
        assert size >= 0

    def data(self, piece: memoryview) -> None:
        name, data = self.members[-1]
        self.members[-1] = name, data + piece

    def end(self) -> None:
        pass


def ours(tar: bytes, cuts: list[int]) -> Members:
    sink = Collected()
    reader = TarReader(sink)
    start = 0
    for cut in [*sorted(cuts), len(tar)]:
        reader.feed(tar[start:cut])
        start = max(start, cut)
    reader.finish()
    return sink.members


def pythons(tar: bytes) -> Members:
    found = []
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:", encoding="utf-8") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            found.append((member.name, content.read()))
    return found


@given(st.lists(st.tuples(paths, contents), max_size=5), st.lists(st.integers(0, 4000), max_size=6))
def test_well_formed_tars_are_read_as_python_reads_them(members: Members, cuts: list[int]) -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1.25  # type: ignore[assignment]
            archive.addfile(info, io.BytesIO(data))
    tar = written.getvalue()
    cuts = [min(cut, len(tar)) for cut in cuts]
    assert ours(tar, cuts) == pythons(tar) == members


@given(st.lists(st.tuples(paths, contents), max_size=5), st.lists(st.integers(0, 4000), max_size=6))
def test_tars_of_old_servers_are_read_as_python_reads_them(
    members: Members, cuts: list[int]
) -> None:
    tar = tar_of(members)
    cuts = [min(cut, len(tar)) for cut in cuts]
    assert ours(tar, cuts) == members
    assert pythons(tar) == members


def mutated(tar: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, or whole blocks doubled, dropped or moved; some headers summed anew."""
    data = bytearray(tar)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) // BLOCK) * BLOCK
        block = bytes(data[at : at + BLOCK])
        kind = chance.randrange(6)
        if kind == 0:
            data[chance.randrange(len(data))] = chance.randrange(256)
        elif kind == 1:
            data[at:at] = block
        elif kind == 2:
            del data[at : at + BLOCK]
        elif kind == 3:
            other = chance.randrange(len(data) // BLOCK) * BLOCK
            data[at : at + BLOCK] = data[other : other + BLOCK]
        elif kind == 4:
            changed = bytearray(block)
            field = chance.choice([(0, 100), (124, 136), (156, 157), (257, 265), (345, 500)])
            position = chance.randrange(*field)
            changed[position] = chance.choice([0, 32, 48, 49, 55, 83, 120, 255, 128])
            data[at : at + BLOCK] = summed(bytes(changed))
        else:
            key = chance.choice([b"path", b"size", b"GNU.sparse.map", b"mtime", b"GNU.sparse.name"])
            content = record(key, chance.choice([b"", b"0", b"1,2,3", b"x" * 90, b"-1"]))
            data[at : at + BLOCK] = content.ljust(BLOCK, b"\0")
        if len(data) < BLOCK:
            return bytes(data)
    return bytes(data)


def test_damaged_tars_are_refused_or_read_as_python_reads_them() -> None:
    chance = random.Random(27)
    tar = tar_of(
        [
            ("meta.inf", b"{}"),
            ("msgs/1.blk", bytes(700)),
            (f"obs/{'n' * 200}/o.dat", b"state"),
            ("obs/ü/meta.inf", b""),
        ]
    )
    taken = refused = 0
    for _ in range(MUTATIONS):
        changed = mutated(tar, chance)
        try:
            found = ours(changed, [])
        except ArchiveError:
            refused += 1
            continue
        taken += 1
        # Python cuts slashes off the end of a name.
        assert [(name.rstrip("/"), data) for name, data in found] == pythons(changed)
    assert taken > MUTATIONS // 50
    assert refused > MUTATIONS // 4
