"""Folders of encrypted streams: made, opened, converted and refused, with the power failing."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest

from power_cuts import both_and_one, cut_off
from tradewind.errors import StoreError
from tradewind.options import NO_SECRET, EncryptionOptions, Secret
from tradewind.store.contract import MessageCopy
from tradewind.store.files.joint_step import make
from tradewind.store.files.vault import MainKeyRing
from tradewind.store.folder.stream_folder import NotReadable, StreamExists, StreamFolder
from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair
from tradewind.store.format.meta import ConsumerMeta, StreamMeta
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

ROOT = "/disk"
NOW = 1_800_000_000_000_000_000
FOLDER = f"{ROOT}/jetstream/$G/streams/S"
META = StreamMeta({"name": "S", "subjects": ["secret.>"]}, NOW)
CONSUMER = ConsumerMeta("C", {"durable_name": "C", "filter_subject": "secret.subject.1"}, NOW)
STATE = ConsumerState(SequencePair(4, 4), SequencePair(1, 1), {2: PendingDelivery(2, NOW)}, {2: 1})
BLOCK_BYTES = 400
COUNT = 12
# Nothing of these is on an encrypted disk.
SECRETS = (b"secret.subject", b"payload of", b"secret.>")


def ring(key: str, cipher: str = "chacha", previous: str = "") -> MainKeyRing:
    old = Secret(previous) if previous else NO_SECRET
    return MainKeyRing(EncryptionOptions(Secret(key), old, cipher))


PLAIN: MainKeyRing | None = None
# From which keys to which; each has to be crossed in a way that any crash leaves whole.
CHANGES: dict[str, tuple[MainKeyRing | None, MainKeyRing]] = {
    "plain to chacha": (PLAIN, ring("k")),
    "plain to aes": (PLAIN, ring("k", "aes")),
    "chacha to aes": (ring("k"), ring("k", "aes")),
    "aes to chacha": (ring("k", "aes"), ring("k")),
    "another key": (ring("k"), ring("new", previous="k")),
    "another key and cipher": (ring("k"), ring("new", "aes", previous="k")),
}
changes = pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)


def folder_on(disk: SimulatedDisk, keys: MainKeyRing | None) -> StreamFolder:
    return StreamFolder(disk, ROOT, "$G", "S", ring=keys)


def opened(disk: SimulatedDisk, keys: MainKeyRing | None) -> dict[int, MessageCopy]:
    """All messages, and the consumer as it was left."""
    folder = folder_on(disk, keys)
    meta, store, report = folder.open(NOW, block_bytes_max=BLOCK_BYTES)
    assert report.is_clean, report
    assert meta.config["subjects"] == ["secret.>"]
    assert meta.created_ns == NOW
    consumers, skipped = folder.consumers()
    assert not skipped
    assert [(each.meta.config["filter_subject"], each.state) for each in consumers] == [
        ("secret.subject.1", STATE)
    ]
    found = {message.seq: message for message in store.table.messages()}
    store.verify()
    return found


def made(keys: MainKeyRing | None, *, killed: bool = False) -> SimulatedDisk:
    """A stream with several blocks, a deleted message and a consumer."""
    disk = SimulatedDisk()
    folder = folder_on(disk, keys)
    folder.create(META)
    store = folder.begin(META, block_bytes_max=BLOCK_BYTES)
    folder.create_consumer(CONSUMER, ConsumerState(), NOW)
    for number in range(1, COUNT + 1):
        payload = b"payload of %d" % number
        store.table.store(b"secret.subject.%d" % (number % 3), b"", payload * 5, NOW)
        store.commit()
    store.table.remove(5)
    store.commit()
    folder.states.mark("C", STATE)
    folder.states.commit(NOW)
    if not killed:
        store.close()
        folder.states.close(NOW)
    return disk


def readable(disk: SimulatedDisk) -> list[tuple[str, bytes]]:
    return [
        (path, text)
        for path, content in disk.file_contents().items()
        for text in SECRETS
        if text in content
    ]


@pytest.mark.parametrize("cipher", ["chacha", "aes"])
@pytest.mark.parametrize("killed", [False, True])
def test_nothing_can_be_read_from_the_disk_and_everything_by_the_key(
    cipher: str, killed: bool
) -> None:
    keys = ring("k", cipher)
    disk = made(keys, killed=killed)
    assert readable(made(PLAIN, killed=killed))
    assert not readable(disk)
    assert len(opened(disk, keys)) == COUNT - 1
    assert not readable(disk)


@pytest.mark.parametrize("keys", [PLAIN, ring("other"), ring("other", "aes", previous="third")])
def test_lost_or_wrong_key_is_named_and_changes_nothing(keys: MainKeyRing | None) -> None:
    disk = made(ring("k"))
    before = disk.snapshot_tree()
    what = "no key is configured" if keys is None else r"meta\.key: the configured key"
    with pytest.raises(NotReadable, match=what):
        folder_on(disk, keys).read_meta()
    with pytest.raises(NotReadable, match=what):
        folder_on(disk, keys).open(NOW)
    with pytest.raises(StoreError):
        folder_on(disk, keys).create(META)
    assert disk.snapshot_tree() == before
    assert len(opened(disk, ring("k"))) == COUNT - 1


def test_stream_whose_own_key_file_is_gone_is_named_and_changes_nothing() -> None:
    disk = made(ring("k"))
    disk.remove(f"{FOLDER}/meta.key")
    before = disk.snapshot_tree()
    with pytest.raises(StoreError):
        folder_on(disk, ring("k")).open(NOW)
    assert disk.snapshot_tree() == before


def test_consumer_whose_key_file_is_damaged_is_left_out_and_changes_nothing() -> None:
    disk = made(ring("k"))
    path = f"{FOLDER}/obs/C/meta.key"
    disk.put_durable_file(path, bytes(72))
    before = disk.content_of(path), disk.content_of(f"{FOLDER}/obs/C/o.dat")
    folder = folder_on(disk, ring("k"))
    folder.open(NOW)
    consumers, skipped = folder.consumers()
    assert not consumers
    assert "does not open this key file" in skipped[0].reason
    assert (disk.content_of(path), disk.content_of(f"{FOLDER}/obs/C/o.dat")) == before


@changes
def test_stream_is_converted_when_it_is_opened(old: MainKeyRing | None, new: MainKeyRing) -> None:
    disk = made(old)
    expected = opened(disk.crash_keeping_unsynced(), old)
    assert opened(disk, new) == expected
    assert not readable(disk)
    names = disk.list_directory(f"{FOLDER}/msgs")
    assert not [name for name in names if "converted" in name or name.endswith(".tmp")]
    # The key of before is not needed any more.
    alone = MainKeyRing(EncryptionOptions(new._main[0], cipher=new.kind.name))
    assert opened(disk.crash_losing_unsynced(), alone) == expected
    files = disk.file_contents()
    keys = [path.replace(".blk", ".key") for path in files if path.endswith((".blk", "meta.key"))]
    sizes = {len(files[path]) for path in keys}
    assert sizes == {72 if new.kind.name == "chacha" else 64}


@pytest.mark.slow
@changes
@pytest.mark.parametrize("killed", [False, True])
def test_conversion_that_is_cut_off_anywhere_is_finished_by_the_next_start(
    old: MainKeyRing | None, new: MainKeyRing, killed: bool
) -> None:
    before = made(old, killed=killed)
    expected = opened(before.crash_keeping_unsynced(), old)

    def crashes(disk: SimulatedDisk, step: int) -> list[SimulatedDisk]:
        return [*both_and_one(disk, step), disk.crash(step + 1000)]

    for step, after in cut_off(before, lambda disk: opened(disk, new), crashes):
        assert opened(after, new) == expected, step
        assert not readable(after), step


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain to aes", "another key and cipher"])
def test_conversion_in_which_any_call_to_the_disk_fails_is_finished_by_the_next_start(
    name: str,
) -> None:
    old, new = CHANGES[name]
    before = made(old, killed=True)
    expected = opened(before.crash_keeping_unsynced(), old)
    for nth in count(1):
        disk = before.crash_keeping_unsynced()
        fault = disk.fail("*", nth=nth)
        with suppress(StoreError):
            folder_on(disk, new).open(NOW, block_bytes_max=BLOCK_BYTES)
        if not fault.hits:
            break
        disk.clear_faults()
        for after in (disk.crash(nth), disk):
            assert opened(after, new) == expected, nth
            assert not readable(after), nth
    assert nth > 100


def test_rotation_of_the_main_key_rewrites_no_message() -> None:
    disk = made(ring("k"))
    blocks = {p: data for p, data in disk.file_contents().items() if p.endswith(".blk")}
    folder = folder_on(disk, ring("new", previous="k"))
    folder.open(NOW, block_bytes_max=BLOCK_BYTES)
    after = {p: data for p, data in disk.file_contents().items() if p.endswith(".blk")}
    assert after == blocks


@pytest.mark.slow
@pytest.mark.parametrize("first", [PLAIN, ring("k")], ids=["plain", "encrypted"])
@pytest.mark.parametrize("second", [PLAIN, ring("k")], ids=["plain", "encrypted"])
def test_creation_that_was_cut_off_is_used_by_the_next_one(
    first: MainKeyRing | None, second: MainKeyRing | None
) -> None:
    def create(disk: SimulatedDisk, keys: MainKeyRing | None) -> StreamFolder:
        folder = folder_on(disk, keys)
        folder.create(META)
        folder.begin(META)
        folder.create_consumer(CONSUMER, STATE, NOW)
        return folder

    whole = SimulatedDisk()
    create(whole, first)
    for stop_at in range(1, whole.steps + 1):
        disk = SimulatedDisk()
        disk.stop_at = stop_at
        with suppress(PowerLoss):
            create(disk, first)
        for seed in range(6):
            after = disk.crash(seed)
            with suppress(StreamExists):
                create(after, second)
                assert opened(after, second) == {}


def test_consumer_made_again_has_another_key() -> None:
    disk = made(ring("k"))
    folder = folder_on(disk, ring("k"))
    folder.open(NOW)
    old = disk.content_of(f"{FOLDER}/obs/C/meta.key")
    folder.delete_consumer("C")
    folder.create_consumer(CONSUMER, ConsumerState(), NOW)
    folder.states.mark("C", STATE)
    folder.states.commit(NOW)
    assert disk.content_of(f"{FOLDER}/obs/C/meta.key") != old
    assert opened(disk, ring("k"))


def test_refused_creation_of_a_consumer_leaves_the_key_of_the_one_that_is_there() -> None:
    disk = made(ring("k"))
    folder = folder_on(disk, ring("k"))
    folder.open(NOW)
    with pytest.raises(StreamExists):
        folder.create_consumer(CONSUMER, ConsumerState(), NOW)
    folder.states.mark("C", STATE)
    folder.states.commit(NOW)
    make(folder.consumer_rewrite(CONSUMER))
    folder.update(META)
    assert opened(disk, ring("k"))


def test_evidence_of_earlier_damage_is_sealed_with_the_stream() -> None:
    disk = made(PLAIN)
    path = f"{FOLDER}/msgs/1.blk"
    content = bytearray(disk.content_of(path))
    content[content.index(b"payload of 1") + 3] ^= 1
    disk.put_durable_file(path, bytes(content))
    disk.remove(f"{FOLDER}/msgs/index.db")
    _, _, report = folder_on(disk, PLAIN).open(NOW)
    assert report.lost
    assert any(".bin" in path for path, _ in readable(disk))
    _, store, _ = folder_on(disk, ring("k")).open(NOW)
    assert not readable(disk)
    assert store.lost is not None


@pytest.mark.parametrize("size", [0, 71, 73])
def test_key_file_of_a_size_that_no_cipher_has_is_named_and_changes_nothing(size: int) -> None:
    disk = made(ring("k"))
    disk.put_durable_file(f"{FOLDER}/meta.key", bytes(size))
    before = disk.snapshot_tree()
    what = rf"meta\.key: the key file is damaged: it has {size} bytes, not 64 or 72"
    with pytest.raises(NotReadable, match=what):
        folder_on(disk, ring("k")).open(NOW)
    assert disk.snapshot_tree() == before


def test_summary_of_an_encrypted_stream_that_is_damaged_costs_nothing() -> None:
    disk = made(ring("k"))
    expected = opened(disk.crash_keeping_unsynced(), ring("k"))
    path = f"{FOLDER}/msgs/index.db"
    content = bytearray(disk.content_of(path))
    content[len(content) // 2] ^= 1
    disk.put_durable_file(path, bytes(content))
    assert opened(disk, ring("k")) == expected


def test_block_that_neither_of_its_keys_opens_stops_the_conversion_and_stays() -> None:
    """Its conversion was cut off, and what is left of it is damaged."""
    disk = made(ring("k"))
    block = f"{FOLDER}/msgs/1.blk"
    disk.put_durable_file(block, bytes(300))
    disk.put_durable_file(f"{block}.converted", bytes(range(256)))
    disk.put_durable_file(f"{FOLDER}/msgs/1.key.converted", bytes(5))
    before = disk.snapshot_tree()
    what = r"1\.blk: neither it nor its converted copy can be decrypted"
    with pytest.raises(StoreError, match=what):
        folder_on(disk, ring("k", "aes")).open(NOW)
    assert disk.snapshot_tree() == before
