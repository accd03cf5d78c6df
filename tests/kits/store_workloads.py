"""Workloads for stores that lose power, and what has to be true of such a store afterwards.

Owns the operations, the naive model that says what every operation does, the ledger of what was
promised when, and the verdict on a recovered store. Takes all chances from seeds. It never looks
inside a file: what is checked is what a user of the store can see.

    run(workload, disk, on_step)    on_step(ledger) is called in front of every I/O step
    examine(disk, ...)              opens a crashed disk and tries everything; gives an Outcome
    judge(ledger, outcome)          what is wrong with that outcome, in words; empty is right
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tradewind.errors import StoreError
from tradewind.options import EncryptionOptions, Secret
from tradewind.store.commits.commit import Commit
from tradewind.store.contract import MessageCopy, StoreLimits
from tradewind.store.files.vault import FileKey, MainKeyRing, StreamVault
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import RecoveryReport, open_store
from tradewind.store.format.ciphers import KINDS
from tradewind.testing.fake_disk import SimulatedDisk

ROOT = "/disk"
FOLDER = "/disk/S"
NAME = "S"
SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS
SUBJECTS = (b"a", b"a.b", b"c.d.e", b"long.subject.with.many.tokens")

Step = tuple[Any, ...]  # the name of an operation and its arguments


@dataclass(frozen=True, slots=True)
class Workload:
    """The operations on a store, its limits, and its block size."""

    name: str
    steps: tuple[Step, ...]
    limits: StoreLimits = field(default_factory=StoreLimits)
    block_bytes_max: int = 400
    settings: tuple[tuple[str, Any], ...] = ()
    cipher: str = ""  # empty: it is not encrypted


def record_bytes(message: MessageCopy) -> int:
    """The size of a message on disk, which is what `bytes_max` counts."""
    header = len(message.header) + 4 if message.header else 0
    return 30 + len(message.subject) + header + len(message.payload)


def matches(pattern: bytes, subject: bytes) -> bool:
    """The rule of subjects, in the plainest way."""
    if not pattern:
        return True
    wanted, tokens = pattern.split(b"."), subject.split(b".")
    for index, token in enumerate(wanted):
        if token == b">":
            return len(tokens) > index
        if index >= len(tokens) or token not in (b"*", tokens[index]):
            return False
    return len(tokens) == len(wanted)


@dataclass(frozen=True, slots=True)
class Removal:
    """The reason for a removal: `cause` is the message that needed the place, 0 for a request."""

    cause: int
    erase: bool = False


@dataclass(slots=True)
class Ledger:
    """The operations of the workload so far, and how many of them were promised to last.

    `gone` has every removal that was begun, in order; the first `promised_gone` of them and all
    sequences up to `acknowledged_seq` were made durable, as far as the store says. Data to be
    erased among the first `promised_erased` is on no disk any more.
    """

    limits: StoreLimits
    now_ns: int = START_NS
    last_seq: int = 0
    acknowledged_seq: int = 0
    promised_gone: int = 0
    promised_erased: int = 0
    messages: dict[int, MessageCopy] = field(default_factory=dict)
    live: dict[int, MessageCopy] = field(default_factory=dict)
    gone: dict[int, Removal] = field(default_factory=dict)
    has_limits: bool = True

    def store(self, subject: bytes, header: bytes, payload: bytes) -> int:
        """A message, and what the limits do about it."""
        seq = self.last_seq = self.last_seq + 1
        message = MessageCopy(seq, self.now_ns, subject, header, payload)
        self.messages[seq] = self.live[seq] = message
        self._trim(subject, seq)
        self._cut_front(seq)
        return seq

    def _trim(self, subject: bytes, cause: int) -> None:
        same = [old for old in self.live.values() if old.subject == subject]
        if self.limits.subject_msgs_max > 0:
            self._remove_all(same[: -self.limits.subject_msgs_max], cause)

    def _cut_front(self, cause: int) -> None:
        limits = self.limits
        if limits.discard_new:
            return
        while limits.msgs_max > 0 and len(self.live) > limits.msgs_max:
            self._remove_all([next(iter(self.live.values()))], cause)
        while limits.bytes_max > 0 and self.live_bytes > limits.bytes_max:
            self._remove_all([next(iter(self.live.values()))], cause)

    def apply_limits(self) -> None:
        """Apply changed limits to the existing messages."""
        for subject in {message.subject for message in self.live.values()}:
            self._trim(subject, 0)
        self._cut_front(0)
        self.expire()

    @property
    def live_bytes(self) -> int:
        """The size of all live messages."""
        return sum(map(record_bytes, self.live.values()))

    def _remove_all(self, messages: list[MessageCopy], cause: int = 0) -> int:
        for message in messages:
            del self.live[message.seq]
            self.gone[message.seq] = Removal(cause)
        return len(messages)

    def remove(self, seq: int, *, erase: bool) -> None:
        """One message."""
        del self.live[seq]
        self.gone[seq] = Removal(0, erase)

    def purge(self, pattern: bytes, below: int, keep: int) -> int:
        """Remove matching messages, below a sequence, or all but the newest."""
        if below and not pattern:
            return self.compact(below)
        chosen = [m for m in self.live.values() if matches(pattern, m.subject)]
        if below:
            chosen = [m for m in chosen if m.seq < below]
        if keep:
            chosen = chosen[:-keep]
        return self._remove_all(chosen)

    def compact(self, seq: int) -> int:
        """All below a sequence, which may lie in the future."""
        self.last_seq = max(self.last_seq, seq - 1)
        return self._remove_all([m for m in self.live.values() if m.seq < seq])

    def expire(self) -> None:
        """Remove messages that are too old."""
        for seq in [seq for seq in self.live if self.is_too_old(seq)]:
            del self.live[seq]
            self.gone[seq] = Removal(seq)

    def is_too_old(self, seq: int) -> bool:
        """Under the age limit, now."""
        age_max_ns = self.limits.age_max_ns
        return age_max_ns > 0 and self.messages[seq].timestamp_ns + age_max_ns <= self.now_ns

    def promise(self, seq: int, gone: int) -> None:
        """The store says that all this is durable."""
        self.acknowledged_seq = max(self.acknowledged_seq, seq)
        self.promised_gone = max(self.promised_gone, gone)

    def promise_all(self) -> None:
        """The store says that there is nothing left to do."""
        self.promise(self.last_seq, len(self.gone))

    def after_crash(self, found: dict[int, MessageCopy], last_seq: int) -> Ledger:
        """A new ledger for the store that came back: what it shows is all there ever will be."""
        messages = {seq: message for seq, message in self.messages.items() if seq <= last_seq}
        ledger = Ledger(self.limits, self.now_ns, last_seq, messages=messages, live=dict(found))
        ledger.gone = {seq: Removal(0) for seq in messages if seq not in found}
        ledger.promise_all()
        return ledger


class Run:
    """A workload under way. `ledger` is ahead of the store by the operation that is being done."""

    def __init__(self, workload: Workload, disk: SimulatedDisk) -> None:
        self.workload = workload
        self.disk = disk
        self.ledger = Ledger(workload.limits)
        self.store: FileStore = None  # type: ignore[assignment]  # until `start`
        self._commit: tuple[Commit, int, int] | None = None

    def start(self) -> None:
        """Open the store, which may be new."""
        self.disk.make_directory(FOLDER, sync=True)
        workload = replace(self.workload, limits=self.ledger.limits)
        self.store, report = open_workload(self.disk, workload, self.ledger.now_ns)
        assert report.is_clean, report

    def start_after_crash(self, before: Ledger) -> None:
        """Open a store that has lost power while `before` was kept."""
        self.store, report = open_workload(self.disk, self.workload, before.now_ns)
        assert not report.lost, report
        found = {message.seq: message for message in self.store.table.messages()}
        self.ledger = before.after_crash(found, self.store.table.last_seq)

    def run(self) -> None:
        """All of it, to the end."""
        self.start()
        self.go_on()

    def go_on(self) -> None:
        """The steps, once the store is open."""
        for step in self.workload.steps:
            self.do(step)

    def do(self, step: Step) -> None:
        """One operation: first in the ledger, then in the store."""
        name, *arguments = step
        getattr(self, f"do_{name}")(*arguments)

    def do_store(self, subject: bytes, header: bytes, payload: bytes, later_ns: int = 1000) -> None:
        self.ledger.now_ns += later_ns
        seq = self.ledger.store(subject, header, payload)
        assert self.store.table.store(subject, header, payload, self.ledger.now_ns) == seq

    def do_remove(self, place: float, erase: bool) -> None:
        """`place` is between 0 (the oldest) and 1 (the newest)."""
        if not self.ledger.live:
            return
        live = list(self.ledger.live)
        seq = live[min(len(live) - 1, int(place * len(live)))]
        self.ledger.remove(seq, erase=erase)
        assert self.store.table.remove(seq, erase=erase)

    def do_purge(self, pattern: bytes, below: float, keep: int) -> None:
        """`below` is a part of all sequences; 0 is none."""
        seq = int(below * (self.ledger.last_seq + 1))
        count = self.ledger.purge(pattern, seq, keep)
        assert self.store.table.purge(pattern, below=seq, keep=keep) == count

    def do_compact(self, place: float) -> None:
        seq = int(place * (self.ledger.last_seq + 1)) + 1
        count = self.ledger.compact(seq)
        assert self.store.table.compact(seq) == count

    def do_skip(self, count: int) -> None:
        self.ledger.last_seq += count
        self.store.table.skip(self.ledger.last_seq, self.ledger.now_ns)

    def do_expire(self, later_ns: int) -> None:
        self.ledger.now_ns += later_ns
        self.ledger.expire()
        self.store.table.expire(self.ledger.now_ns)

    def do_limits(self, limits: StoreLimits) -> None:
        """In the order that a change needs: the store, the configuration, the messages."""
        self.store.table.set_limits(limits)
        self.do_commit()
        self.ledger.limits = limits
        self.ledger.apply_limits()
        self.store.table.apply_limits(self.ledger.now_ns)
        self.compare()

    def do_limits_in_steps(self, limits: StoreLimits, step: int) -> None:
        """The same a few messages at a time, with commits in between.

        All that is to go may be gone at any time; it is promised when all of it is.
        """
        self.store.table.set_limits(limits)
        self.do_commit()
        self.ledger.limits = limits
        gone = len(self.ledger.gone)
        self.ledger.apply_limits()
        self.store.table.begin_limits()
        while self.store.table.limit_step(step):
            if (commit := self.store.begin_commit()) is not None:
                commit.run()
                self.ledger.promise(self.ledger.last_seq, gone)
                self.store.finish_commit(commit)
        self.store.table.expire(self.ledger.now_ns)
        self.compare()

    def do_begin(self) -> None:
        """Hand over to the worker what there is; other operations may follow meanwhile."""
        if self._commit is None:
            last_seq, gone = self.ledger.last_seq, len(self.ledger.gone)
            commit = self.store.begin_commit()
            if commit is None:
                self.ledger.promise(last_seq, gone)
                self.ledger.promised_erased = gone
            else:
                self._commit = commit, last_seq, gone

    def do_finish(self) -> None:
        """The worker does it, and the store keeps its promise."""
        if self._commit is not None:
            commit, last_seq, gone = self._commit
            self._commit = None
            commit.run()
            if commit.error is None:
                self.ledger.promise(last_seq, gone)
                if not commit.has_chores:  # then nothing was left to erase when it began
                    self.ledger.promised_erased = gone
            self.store.finish_commit(commit)

    def do_alone(self) -> None:
        """A commit that nothing happens during: usually one without chores."""
        if self._commit is None:
            self.do_begin()
            self.do_finish()

    def do_commit(self) -> None:
        """Until nothing is left to do."""
        self.do_finish()
        self.do_begin()
        while self._commit is not None:
            self.do_finish()
            self.do_begin()
        assert (
            self.store.table.synced_seq == self.store.table.last_seq
            or not self.store.table.last_seq
        )

    def do_reopen(self) -> None:
        """Close, which leaves an index.db, and open again."""
        self.do_commit()
        self.store.close()
        assert self.disk.exists(f"{FOLDER}/msgs/index.db")
        self.start()
        self.compare()

    def compare(self) -> None:
        """The store shows what the model says."""
        assert {m.seq: m for m in self.store.table.messages()} == self.ledger.live
        assert self.store.table.last_seq == self.ledger.last_seq
        self.store.verify()


def vault_of(disk: SimulatedDisk, cipher: str) -> StreamVault | None:
    """The keys of the stream; the main key and that of the stream are always the same."""
    if not cipher:
        return None
    # Repeatable, and others in each life of the store.
    ring = MainKeyRing(
        EncryptionOptions(Secret("main"), cipher=cipher), Random(disk.steps).randbytes
    )
    key = FileKey(KINDS[cipher], bytes(32), bytes(24)[: KINDS[cipher].nonce_bytes])
    vault = StreamVault(disk, ring, "$G", NAME, FOLDER, key)
    vault.blocks.ahead_max = 2  # blocks are small here, and each write of a key is a step
    return vault


def plain_files(disk: SimulatedDisk, cipher: str = "") -> dict[str, bytes]:
    """The files of a disk, blocks and copies of them decrypted."""
    files = disk.file_contents()
    vault = vault_of(disk, cipher)
    for path, content in list(files.items()) if vault is not None else ():
        if "/msgs/" in path and ".blk" in path:
            number = int(path.rpartition("/")[2].partition(".")[0])
            with suppress(StoreError):  # a copy without a key cannot be read
                vault.blocks.read(number)
                files[path] = vault.blocks.cipher(number).encrypt(content)
    return files


def encrypted(workload: Workload, seed: int) -> Workload:
    """The same with one of the ciphers."""
    return replace(workload, cipher=("chacha", "aes")[seed % 2])


def open_workload(
    disk: SimulatedDisk, workload: Workload, now_ns: int
) -> tuple[FileStore, RecoveryReport]:
    """Open the store as the workload wants it."""
    return open_store(
        disk,
        FOLDER,
        NAME,
        workload.limits,
        now_ns=now_ns,
        block_bytes_max=workload.block_bytes_max,
        vault=vault_of(disk, workload.cipher),
        **dict(workload.settings),
    )


# --- the workloads --------------------------------------------------------------------------------

LIMITS = (
    StoreLimits(),
    StoreLimits(msgs_max=5),
    StoreLimits(bytes_max=500),
    StoreLimits(age_max_ns=20 * SECOND_NS),
    StoreLimits(subject_msgs_max=1),
    StoreLimits(subject_msgs_max=2, msgs_max=6),
    StoreLimits(msgs_max=8, bytes_max=900, age_max_ns=60 * SECOND_NS, subject_msgs_max=3),
    StoreLimits(msgs_max=4, bytes_max=600, subject_msgs_max=2, discard_new=True),
)
# Whether blocks are compressed, and from which size on they are compacted.
REWRITING = (
    (),
    (("compact_bytes_min", 60),),
    (("compresses", True),),
    (("compresses", True), ("compact_bytes_min", 60)),
)
HEADER = b"NATS/1.0\r\nKey: value\r\n\r\n"


def random_workload(
    seed: int, length: int = 40, *, changes_limits: bool = False, short_commits: bool = False
) -> Workload:
    """Any operations in any order; the same seed gives the same workload.

    With `changes_limits` the limits to open the store with are those of the ledger. With
    `short_commits` the store syncs by itself now and then.
    """
    random = Random(seed)
    limits = random.choice(LIMITS)
    block_bytes_max = random.choice((250, 400, 700, 1500, 5000))
    makers: list[Callable[[Random], list[Step]]] = [_stores] * 8 + [
        _removal,
        _removal,
        _purge,
        lambda r: [("compact", r.choice((r.random(), 1.0, 1.2)))],
        lambda r: [("skip", r.choice((1, 2, 5, 70_000)))],
        lambda r: [("expire", r.choice((0, SECOND_NS, 30 * SECOND_NS)))],
        lambda _: [("commit",)],
        lambda _: [("commit",)],
        lambda _: [("begin",)],
        lambda _: [("begin",)],
        lambda _: [("finish",)],
        lambda _: [("finish",)],
        *([lambda _: [("alone",)]] * 2 if short_commits else []),
        lambda _: [("reopen",)],
    ]
    if changes_limits:
        makers += [lambda r: [("limits", r.choice(LIMITS))]] * 3
    steps: list[Step] = []
    while len(steps) < length:
        steps += random.choice(makers)(random)
    if random.random() < 0.5:
        steps.append(("commit",))
    rewriting = random.choice(REWRITING)
    return Workload(f"random {seed}", tuple(steps), limits, block_bytes_max, rewriting)


def with_short_commits(workload: Workload) -> Workload:
    """The same in a store that syncs by itself wherever it can, before and after other commits."""
    steps: list[Step] = []
    for step in workload.steps:
        steps += [step, ("alone",)] if step[0] in ("store", "finish") else [step]
    return replace(workload, steps=tuple(steps))


def with_limits_in_steps(workload: Workload, step: int) -> Workload:
    """The same in a store that needs several steps to apply other limits."""
    steps = (
        ("limits_in_steps", each[1], step) if each[0] == "limits" else each
        for each in workload.steps
    )
    return replace(workload, steps=tuple(steps))


def with_rewrites(workload: Workload, seed: int) -> Workload:
    """The same in a store that compresses or compacts its blocks, or does both."""
    compact_bytes_min = 100 if seed % 3 else 1 << 20
    settings = (("compresses", seed % 2 == 0), ("compact_bytes_min", compact_bytes_min))
    return replace(workload, settings=settings)


def _stores(random: Random) -> list[Step]:
    return [_store(random) for _ in range(random.choice((1, 1, 2, 5)))]


def _store(random: Random) -> Step:
    size = random.choice((0, 1, 7, 30, 100, 700))
    header = HEADER if random.random() < 0.3 else b""
    later_ns = random.choice((1, 1000, SECOND_NS))
    return "store", random.choice(SUBJECTS), header, random.randbytes(size), later_ns


def _removal(random: Random) -> list[Step]:
    place = random.choice((0.0, 1.0, random.random()))
    return [("remove", place, random.random() < 0.4)] * random.choice((1, 1, 4))


def _purge(random: Random) -> list[Step]:
    pattern = random.choice((b"", b"a", b"a.*", b"c.>", b">"))
    below, keep = random.choice(((0.0, 0), (random.random(), 0), (0.0, random.randint(1, 4))))
    return [("purge", pattern, below, keep)]


def store_step(payload: bytes = b"x" * 20, subject: bytes = b"a") -> Step:
    """A message where the subject does not matter."""
    return "store", subject, b"", payload


def committed_stores(*messages: tuple[bytes, int]) -> tuple[Step, ...]:
    """Messages of these subjects and sizes, each promised before the next."""
    return tuple(
        step
        for subject, size in messages
        for step in (store_step(b"x" * size, subject), ("commit",))
    )


def rewriting_workloads() -> Iterator[Workload]:
    """Stories of blocks that are written anew."""
    commit, begin, finish = ("commit",), ("begin",), ("finish",)
    messages = tuple(store_step(b"%02d" % n + b"text " * 12 + b"%02d" % n) for n in range(14))
    compress = (("compresses", True),)
    yield Workload(
        "blocks are compressed while others follow",
        (*messages[:5], begin, *messages[5:9], finish, begin, *messages[9:], finish, commit),
        settings=compress,
    )
    erase = tuple(("remove", place, True) for place in (0.0, 0.4, 0.99))
    for name, settings in (("plain", ()), ("compressed", compress)):
        yield Workload(
            f"messages of {name} blocks are erased",
            (*messages[:12], commit, *erase, begin, messages[12], finish, commit, messages[13]),
            settings=settings,
        )
        yield Workload(
            f"{name} blocks are compacted while messages come and go",
            (
                *messages,
                commit,
                *[("remove", 0.3, False), ("remove", 0.9, True)] * 3,
                begin,
                *[("remove", 0.5, False)] * 3,
                finish,
                *messages[:4],
                begin,
                *[("remove", 0.99, False)] * 3,
                finish,
                commit,
                ("remove", 0.0, False),
                commit,
            ),
            settings=(*settings, ("compact_bytes_min", 60)),
        )


def scripted_workloads() -> Iterator[Workload]:
    """The stories that every store has to survive, each under the limit that makes it hard."""
    message, large = store_step(b"x" * 60), store_step(b"y" * 300)
    commit, begin, finish = ("commit",), ("begin",), ("finish",)
    fill = (message, message, large, commit, large, message, commit)
    yield Workload("appends in batches over blocks", fill * 2)
    yield Workload(
        "one large batch in one write", (message, commit, *[large] * 6, begin), block_bytes_max=5000
    )
    yield Workload("purge of everything", (*fill, ("purge", b"", 0.0, 0), commit, message, commit))
    yield Workload(
        "purge while a commit is under way",
        (*fill, message, begin, ("purge", b"", 0.0, 0), finish, message, begin, finish, commit),
    )
    yield Workload(
        "last value of a key while a commit is under way",
        (message, commit, message, begin, message, large, finish, large, begin, finish, commit),
        StoreLimits(subject_msgs_max=1),
        250,
    )
    yield Workload(
        "last value of all while a commit is under way",
        (message, commit, message, begin, message, large, finish, large, begin, finish, commit),
        StoreLimits(msgs_max=1),
        250,
    )
    removals = (("remove", 0.0, False), ("remove", 0.5, True), commit, ("remove", 1.0, False))
    yield Workload("removals from every place", (*fill, *removals, commit, message, begin) * 2)
    yield Workload(
        "limit makes room, then a removal",
        (*[message] * 6, commit, ("remove", 1.0, False), commit, message, commit),
        StoreLimits(msgs_max=3),
        250,
    )
    yield Workload(
        "limit makes room, then a trim by subject",
        committed_stores((b"a", 60), (b"c", 300), (b"b", 60), (b"c", 5)),
        StoreLimits(bytes_max=500, subject_msgs_max=1),
        5000,
    )
    yield Workload(
        "limit makes room by what has gone before",
        committed_stores((b"b", 10), (b"a", 380), (b"c", 10), (b"d", 20), (b"e", 200), (b"a", 5)),
        StoreLimits(bytes_max=534, subject_msgs_max=1),
        5000,
    )
    yield from rewriting_workloads()
    yield Workload(
        "compaction into the future",
        (*fill, ("compact", 1.5), commit, message, commit, ("skip", 70_000), message, commit),
    )
    yield Workload(
        "closed and opened all the time",
        (message, ("reopen",), large, ("reopen",), ("remove", 0.0, False), ("reopen",), message),
    )
