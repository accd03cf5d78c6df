"""Checkpoints of tamper-proof streams: when one is made, and with which key.

Owns the companion of a stream that has its chain signed after a number of entries or a time, and
the key of the server. Signing and writing are done by workers; a stream has at most one checkpoint
in progress. The content of a checkpoint is defined in `store.folder.stream_chain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tradewind import nkeys
from tradewind.api.chain_rules import ChainRule, chain_rule_of
from tradewind.api.times import format_time
from tradewind.durations import SECOND_NS
from tradewind.errors import StoreError
from tradewind.nkeys import KeyPair, NkeyError
from tradewind.private_files import replace_private
from tradewind.store.files.disk import MissingFile, OsDisk
from tradewind.store.folder.chain_reading import ChainReader

if TYPE_CHECKING:
    from tradewind.jetstream.companions import Wanted
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.store.folder.stream_chain import CheckpointWrite, StreamChain

KEY_FILE: Final = "chain.nk"
# After a checkpoint that could not be written.
AGAIN_NS: Final = 10 * SECOND_NS


def chains_of(hosted: HostedStream) -> Wanted:
    """The companion that keeps the chain of a stream, if the stream has a chain."""
    files = hosted.stream.files
    if files is None or files.chain is None:
        return {}
    return {("chain", files.chain): partial(ChainKeeper, hosted, files.chain)}


class ChainKeeper:
    """Has the chain of one stream signed on schedule. A `Companion`."""

    def __init__(self, hosted: HostedStream, chain: StreamChain) -> None:
        self.chain = chain
        self.reader = ChainReader(chain)
        self._hosted = hosted
        self._rule = self._rule_now()
        self._due_ns = 0  # monotonic; 0: nothing is new
        self._is_writing = False
        self._has_failed = False
        self._is_closed = False

    def _rule_now(self) -> ChainRule:
        rule = chain_rule_of(self._hosted.config.metadata)
        assert rule is not None
        return rule

    def attach(self) -> None:
        """See `Companion`."""
        self.kept()
        if (broken := self.chain.broken) is not None:
            text = f"the chain is broken at entry {broken.index}: {broken.reason}"
            place = self._hosted.place
            self._hosted.engine.log.error(f"JetStream stream {place}: {text}")
            self._tell_broken()

    def _tell_broken(self) -> None:
        """Publish the advisory, at each checkpoint again: at the start nothing may be
        subscribed.
        """
        hosted = self._hosted
        if (broken := self.chain.broken) is not None and hosted.is_attached:
            hosted.engine.advisories.chain_broken(
                hosted.tenant.account, hosted.name, broken.index, broken.reason
            )

    def changed(self) -> None:
        """See `Companion`."""
        self._rule = self._rule_now()
        self._due_ns = 0
        self.kept()

    def kept(self) -> None:
        """See `Companion`: a commit has ended."""
        self._hosted.keep(self.chain, self.chain.stored_bytes)
        unchecked = self.chain.unchecked
        if not unchecked or self._is_writing or self._is_closed or self._has_failed:
            return
        if unchecked >= self._rule.messages:
            self._begin()
        elif not self._due_ns:
            self._due_ns = self._hosted.engine.turn.monotonic_ns + self._rule.seconds * SECOND_NS
            self._hosted.companions.set_timer(self)

    @property
    def next_deadline_ns(self) -> int:
        """See `Companion`."""
        return self._due_ns

    def tick(self) -> None:
        """See `Companion`."""
        self._due_ns = 0
        self._has_failed = False
        if self.chain.unchecked and not self._is_writing:
            self._begin()

    def _begin(self) -> None:
        self._due_ns = 0
        self._is_writing = True
        try:
            write = self.next_write()
        except StoreError as error:
            self._ended(None, error)
            return
        self._hosted.engine.workers.submit(write.run, partial(self._ended, write))

    def next_write(self) -> CheckpointWrite:
        """A checkpoint of the entries synced so far; StoreError if there is no key."""
        engine = self._hosted.engine
        now = format_time(engine.broker.now_ns())
        return self.chain.next_checkpoint(engine.chain_key(), now)

    def _ended(self, write: CheckpointWrite | None, error: Exception | None) -> None:
        self._is_writing = False
        engine = self._hosted.engine
        if write is not None and error is None:
            engine.set_time()
            self.chain.checkpointed(write)
            self._tell_broken()
            self.kept()
            return
        engine.log.error(f"JetStream stream {self._hosted.place}: no checkpoint: {error}")
        if not self._is_closed:
            engine.set_time()
            self._has_failed = True
            self._due_ns = engine.turn.monotonic_ns + AGAIN_NS
            self._hosted.companions.set_timer(self)

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being made."""
        return self._is_writing

    def take(self) -> None:
        """Make no checkpoints until `give_back`: a request makes one itself."""
        self._is_writing = True

    def give_back(self) -> None:
        """Resume after the request that called `take` has finished."""
        self._is_writing = False
        self._tell_broken()
        self.kept()

    def close(self, *, for_good: bool) -> None:  # noqa: ARG002 - see `Companion`
        """See `Companion`."""
        self._is_closed = True

    def describe(self) -> Mapping[str, Any]:
        """See `Companion`: the information about a stream keeps its shape."""
        return {}


def keeper_of(hosted: HostedStream) -> ChainKeeper | None:
    """The keeper of a stream's chain; None if the stream has no chain."""
    return next((each for each in hosted.companions if isinstance(each, ChainKeeper)), None)


def load_key(engine: JetStreamEngine) -> KeyPair:
    """The signing key: the configured one, or one that is created once and stored in the store
    folder. The text of a StoreError names the problem and never contains the key.
    """
    given = engine.settings.options.chain_key.reveal()
    if len(given) == nkeys.SEED_LENGTH and given.startswith(nkeys.SEED) and given.isalnum():
        return _key(given, "chain_key")
    root = engine.root
    if root is None:
        raise StoreError("chain_key: there is no store folder")
    if given:
        try:
            return _key(Path(given).read_text().strip(), given)
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"chain_key: {given} cannot be read: {error}") from None
    path = f"{root.root}/{KEY_FILE}"
    try:
        return _key(root.disk.read_file(path).decode("ascii", "replace").strip(), path)
    except MissingFile:
        pass
    pair = KeyPair.create(nkeys.SERVER)
    content = pair.seed.encode() + b"\n"
    if not isinstance(root.disk, OsDisk):  # one that only tests have
        root.disk.write_file_atomically(path, content)
        return pair
    try:
        replace_private(Path(path), content)
    except OSError as error:
        raise StoreError(f"{path}: the key of chains cannot be written: {error}") from None
    return pair


def _key(text: str, place: str) -> KeyPair:
    try:
        return KeyPair.from_seed(text)
    except NkeyError as error:
        raise StoreError(f"{place}: not the seed of a signing key: {error}") from None
