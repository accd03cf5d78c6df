"""The folder of one stream, and the root folder of all streams.

Owns everything beside the messages: configuration, consumers, the order of the steps in which a
stream is created and deleted, and the lock that keeps a second server out. The messages are opened
through `recover.open_store`, consumer states are written through `consumer_states`.

- A stream exists as soon as its meta.sum does; everything before that is durable by then. A folder
  without one is an interrupted creation, if it holds no data. If it holds data, a file has been
  lost, and the folder is never touched.
- Deleting renames the folder to ".<STREAM>" first; a start of either server removes it.
- A folder that cannot be understood is listed with the reason and left unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from tradewind.api.times import format_time
from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.contract import limits_of
from tradewind.store.files.creation import Creation
from tradewind.store.files.disk import DiskFault, MissingFile
from tradewind.store.files.joint_step import make
from tradewind.store.files.meta_files import MetaRewrite, find_meta, finish_meta, has_meta
from tradewind.store.files.removal import FolderRemoval, Trash
from tradewind.store.files.unsettled import UnsettledCreations
from tradewind.store.files.witness import WITNESS_FILE, first_testimony
from tradewind.store.folder.consumer_states import ConsumerStates
from tradewind.store.folder.filestore import FileStore, first_block
from tradewind.store.folder.recover import open_store
from tradewind.store.format.ack_log import (
    LogRecord,
    apply_records,
    decode_with_trailer,
    log_name,
    log_numbers,
    read_log,
)
from tradewind.store.format.consumer_file import ConsumerState, encode_consumer_state
from tradewind.store.format.layout import (
    BATCHES_FOLDER,
    BLOCK_BYTES_ENCRYPTED,
    CONSUMER_FILE,
    CONSUMERS_FOLDER,
    JETSTREAM_FOLDER,
    MESSAGES_FOLDER,
    META_FILE,
    META_KEY_FILE,
    META_SUM_FILE,
    NAME_BYTES_MAX,
    NEW_MESSAGES_FOLDER,
    SNAPSHOTS_FOLDER,
    STREAMS_FOLDER,
    TEMPLATES_FILE,
    TEMPORARY_SUFFIX,
    account_name_problem,
    block_bytes_max,
    block_file_name,
    block_numbers,
    consumer_key_text,
    is_encrypted,
    name_problem,
    stream_folder,
    stream_key_text,
)
from tradewind.store.format.meta import (
    ConsumerMeta,
    StreamMeta,
    decode_consumer_meta,
    decode_stream_meta,
    encode_consumer_meta,
    encode_stream_meta,
)

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk, DiskFile
    from tradewind.store.files.meta_files import FoundMeta
    from tradewind.store.files.vault import MainKeyRing, Sealer, StreamVault
    from tradewind.store.folder.recover import RecoveryReport
    from tradewind.store.folder.stream_chain import ChainSettings

LOCK_FILE = "tradewind.lock"
SHELF_PREFIX = "tradewind.purged."
CHAIN_KEY = "tradewind.chain"  # of the metadata: the rules are in `tradewind.api.chains`
UNFINISHED_SUM = META_SUM_FILE + TEMPORARY_SUFFIX
# The name of a consumer's sum after its deletion, in folders that earlier versions have left.
DELETED_SUM = "meta.sum.deleted"
# Each folder of a removed consumer has a name of its own.
_TRASH_NUMBERS = count()


class StreamExists(StoreError):  # noqa: N818 - it names what was found
    """The folder of a new stream is taken, by a stream or by data without a stream."""


class NotReadable(StoreError):  # noqa: N818 - it names what was found
    """A stream that this server cannot open, though nothing in it is damaged."""


class SkippedFolder(msgspec.Struct, frozen=True):
    """A folder that was left alone, and the reason."""

    path: str
    reason: str


class StoredConsumer(msgspec.Struct, frozen=True):
    """A consumer as it is on disk. `problem` is a defect that does not prevent its use.

    `has_state`: it has begun, be it before the first message; else its configuration says where it
    begins. `has_log`: o.dat alone may not be all of the state.
    """

    meta: ConsumerMeta
    state: ConsumerState
    problem: str = ""
    has_state: bool = True
    has_log: bool = False


def _begin_at(store: FileStore, meta: StreamMeta) -> None:
    """Set the first sequence, which may be configured."""
    first_seq = int(meta.config.get("first_seq") or 0)
    if first_seq > store.table.first_seq:
        store.table.compact(first_seq)


class StreamFolder:
    """One stream below `root`, the configured store folder; making this object touches nothing."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        account: str,
        stream: str,
        durable: set[str] | None = None,
        path: str = "",
        ring: MainKeyRing | None = None,
        *,
        converts: bool = True,
    ) -> None:
        """`ring` has the keys for encryption; files are re-encrypted only if `converts`."""
        if problem := account_name_problem(account):
            raise StoreError(f"account name {account!r} {problem}")
        if problem := name_problem(stream):
            raise StoreError(f"stream name {stream!r} {problem}")
        self.disk = disk
        self.account = account
        self.stream = stream
        # Elsewhere while a backup is being restored.
        self.path = path or f"{root}/{stream_folder(account, stream)}"
        self._root = root
        # Folders of `names` whose names are known to be on disk; shared by all streams.
        self._durable = set() if durable is None else durable
        self._retired: list[str] = []
        self._consumers = f"{self.path}/{CONSUMERS_FOLDER}"
        self.states = ConsumerStates(disk, self._consumers)
        self._ring = ring
        self._converts = converts
        self._vault: StreamVault | None = None
        # The result of `read_meta`, for the opening that follows.
        self._found: tuple[StreamMeta, FoundMeta] | None = None
        # Readers of a stream, or of a copy of it, leave its chain alone.
        self.is_chained = False
        self.clock: Callable[[], int] = time.time_ns  # the time of removals in it
        # Whether creations and deletions here do not wait for the disk.
        self.is_lazy = False
        self.unsettled = UnsettledCreations(disk)
        self.trash = Trash(disk)

    # ---------------------------------------------------------------- the stream

    def create(self, meta: StreamMeta) -> None:
        """Create the stream, durably; reuses what an interrupted creation has left."""
        make(self.creation(meta))

    def creation(self, meta: StreamMeta) -> Creation:
        """The steps that create the stream; `begin` opens it afterwards."""
        self._check_name(meta)
        content, files = encode_stream_meta(meta), {self._first_block: first_block(self.stream)}
        if self._ring is not None:
            from tradewind.store.folder.sealed_folder import sealed_creation

            self._vault, content, files = sealed_creation(self, self._ring, content, files)
        return Creation(
            self.disk,
            self.path,
            content,
            stream_key_text(self.stream),
            check=self._check_unused,
            files=files,
            hints={f"{self.path}/{WITNESS_FILE}": first_testimony(self.stream)},
            names=self._names(),
            durable=self._durable,
            is_lazy=self.is_lazy,
        )

    def _names(self) -> list[tuple[str, str]]:
        """The folders to sync so that this one is found, each with the folder that they name.

        A folder that existed already may not be durable either, but has to be synced only once.
        """
        folder = self.path.rpartition("/")[0]
        names = [(folder, "")]
        while folder != self._root and folder not in self._durable:
            outer = folder.rpartition("/")[0]
            names.append((outer, folder))
            folder = outer
        return names

    @property
    def _first_block(self) -> str:
        return f"{self.path}/{MESSAGES_FOLDER}/{block_file_name(1)}"

    def is_unfinished(self) -> bool:
        """Whether a creation was cut off here: no sum, and no data either."""
        return not has_meta(self.disk, self.path) and not self._data_without_meta()

    def _check_unused(self) -> None:
        """StoreError unless the folder holds only what an incomplete creation writes."""
        if not self.disk.exists(self.path):
            return
        if has_meta(self.disk, self.path):
            raise StreamExists(f"{self.path}: the stream exists already")
        if found := self._data_without_meta():
            raise StreamExists(
                f"{self.path}: there is no {META_SUM_FILE}, but {found};"
                " put the file back, or move the folder away if the data is not needed"
            )
        if self._ring is None:
            self._remove_unused_keys()

    def _remove_unused_keys(self) -> None:
        """Remove the keys of an interrupted creation, made when a key was configured."""
        for folder in (self.path, f"{self.path}/{MESSAGES_FOLDER}"):
            names = self.disk.list_directory(folder) if self.disk.exists(folder) else []
            for name in names:
                if is_encrypted([name]):
                    self.disk.remove(f"{folder}/{name}")

    def _data_without_meta(self) -> str:
        for name in (MESSAGES_FOLDER, NEW_MESSAGES_FOLDER):
            folder = f"{self.path}/{name}"
            if not self.disk.exists(folder):
                continue
            for number in block_numbers(self.disk.list_directory(folder)):
                path = f"{folder}/{block_file_name(number)}"
                with self.disk.open(path) as file:
                    if file.size and not (path == self._first_block and self._is_new(file)):
                        return f"there are messages in {name}"
        if self.disk.exists(self._consumers) and self.disk.list_directory(self._consumers):
            return f"there are consumers in {CONSUMERS_FOLDER}"
        return ""

    def _is_new(self, file: DiskFile) -> bool:
        """Whether a block has the content that a creation writes, or a part of it."""
        fresh = first_block(self.stream)
        content = file.read(0, len(fresh) + 1)
        if self._ring is not None and len(content) <= len(fresh):
            return True  # encrypted, and too small for a message
        return len(content) <= len(fresh) and all(
            byte in (0, expected) for byte, expected in zip(content, fresh, strict=False)
        )

    def read_meta(self) -> StreamMeta:
        """Read the configuration. CorruptRecord, NotReadable or MissingFile if there is none."""
        self._found = self._find_meta()
        return self._found[0]

    def _find_meta(self) -> tuple[StreamMeta, FoundMeta]:
        self._vault = self._read_vault()
        found = find_meta(self.disk, self.path, stream_key_text(self.stream))
        path = f"{self.path}/meta.inf"
        if found.problem:
            raise CorruptRecord(path, 0, found.problem)
        meta = decode_stream_meta(self._unsealed(self._vault, found.data, path), path)
        if meta.config["name"] != self.stream:
            raise CorruptRecord(
                path, 0, f"it is of stream {meta.config['name']!r}, not {self.stream!r}"
            )
        return meta, found

    def _read_vault(self) -> StreamVault | None:
        """Read the keys of the stream; None: not encrypted. NotReadable without a main key."""
        if not is_encrypted(self.disk.list_directory(self.path)):
            return None
        if self._ring is None:
            raise NotReadable(
                f"{self.path}: the stream is encrypted, and no key is configured: set key in the"
                " jetstream block to the one that it was encrypted with"
            )
        from tradewind.store.files.vault import UnusableKey
        from tradewind.store.folder.sealed_folder import read_vault

        try:
            return read_vault(self, self._ring)
        except UnusableKey as error:
            raise NotReadable(str(error)) from None

    def _unsealed(self, sealer: Sealer | None, data: bytes, path: str) -> bytes:
        if sealer is None:
            return data
        from tradewind.store.folder.conversion import unsealed

        return unsealed(sealer, data, path)

    @property
    def vault(self) -> StreamVault | None:
        """The keys of the stream, read once."""
        if self._vault is None and self._ring is not None:
            self._vault = self._read_vault()
        return self._vault

    def _seal_states(self) -> None:
        """Seal the states of consumers from now on, if the stream is encrypted."""
        vault = self.vault
        if vault is None:
            self.states.seal = None
            return

        def seal(consumer: str, content: bytes) -> bytes:
            sealer = vault.consumer(consumer, self._consumer_folder(consumer))
            assert sealer is not None, "a consumer of an encrypted stream has a key"
            return sealer.seal(content)

        self.states.seal = seal

    def update(self, meta: StreamMeta) -> None:
        """Replace the configuration, durably."""
        make(self.rewrite(meta))

    def rewrite(self, meta: StreamMeta) -> MetaRewrite:
        """The step that replaces the configuration."""
        self._check_name(meta)
        self._found = None
        content, vault = encode_stream_meta(meta), self.vault
        content = content if vault is None else vault.seal(content)
        return MetaRewrite(self.disk, self.path, content, stream_key_text(self.stream))

    def _check_name(self, meta: StreamMeta) -> None:
        """StoreError if a configuration is that of another stream."""
        if (name := meta.config.get("name")) != self.stream:
            raise StoreError(f"the configuration of {self.stream!r} has the name {name!r}")

    def open(
        self,
        now_ns: int,
        *,
        max_payload_bytes: int = 0,
        progress: Callable[[int, int], None] | None = None,
        **settings: Any,
    ) -> tuple[StreamMeta, FileStore, RecoveryReport]:
        """Open an existing stream and its messages; `settings` are those of the store."""
        # The caller has usually just read it.
        meta, found = self._found or self._find_meta()
        self._found = None
        finish_meta(self.disk, self.path, found)

        def open_now(vault: StreamVault | None) -> tuple[FileStore, RecoveryReport]:
            self._vault = vault
            return open_store(
                self.disk,
                self.path,
                self.stream,
                limits_of(meta.config),
                now_ns=now_ns,
                progress=progress,
                chain=self.chain_settings(meta),
                **self._settings(meta, max_payload_bytes, settings),
            )

        before: RecoveryReport | None = None
        if self._ring is not None and self._converts:
            from tradewind.store.folder.sealed_folder import convert_stream

            self._vault, before = convert_stream(self, self._ring, self._vault, meta, open_now)
        self._seal_states()
        store, report = open_now(self._vault)
        if before is not None:
            report.add(before)
        store.unsettled = self.unsettled
        _begin_at(store, meta)
        return meta, store, report

    def chain_settings(self, meta: StreamMeta) -> ChainSettings | None:
        """The settings of the chain that the metadata asks for; None: there is none."""
        metadata = meta.config.get("metadata")
        if not metadata or CHAIN_KEY not in metadata or not self.is_chained:
            return None
        from tradewind.store.folder.stream_chain import ChainSettings

        return ChainSettings(
            self.stream,
            format_time(meta.created_ns or 0),
            str(metadata[CHAIN_KEY]),
            self.clock,
        )

    def begin(self, meta: StreamMeta, *, max_payload_bytes: int = 0, **settings: Any) -> FileStore:
        """Open the store that `creation` made; the owner commits it if it is dirty."""
        self._seal_states()
        settings = self._settings(meta, max_payload_bytes, settings)
        folder = f"{self.path}/{MESSAGES_FOLDER}"
        store = FileStore(self.disk, folder, self.stream, limits_of(meta.config), **settings)
        store.begin()
        store.unsettled = self.unsettled
        if (chain := self.chain_settings(meta)) is not None:
            from tradewind.store.folder.chain_recovery import open_chain

            open_chain(store, chain)
        _begin_at(store, meta)
        return store

    def _settings(
        self, meta: StreamMeta, max_payload_bytes: int, wanted: dict[str, Any]
    ) -> dict[str, Any]:
        """The settings of the store; those in `wanted` override the configuration."""
        size = block_bytes_max(meta.config, max_payload_bytes)
        if self._vault is not None:
            size = min(size, BLOCK_BYTES_ENCRYPTED)
        return {
            "block_bytes_max": size,
            "vault": self._vault,
            "compresses": meta.config.get("compression") == "s2",
            **wanted,
        }

    def beside(self, name: str) -> StreamFolder:
        """A stream of the same name in a subfolder of this one, with the same keys."""
        path = f"{self.path}/{name}"
        return StreamFolder(
            self.disk, self._root, self.account, self.stream, path=path, ring=self._ring
        )

    def has_shelves(self) -> bool:
        """Whether messages were removed that can still be brought back, see `shelf`."""
        names = self.disk.list_directory(self.path)
        return any(name.startswith(SHELF_PREFIX) for name in names)

    def move_to(self, target: StreamFolder) -> None:
        """Move a complete stream to its place, durably; after a crash it is at either.

        After a StoreError it is here.
        """
        target._check_unused()
        self.disk.remove_tree(target.path)
        self.disk.make_directory(target.path.rpartition("/")[0])
        self.disk.sync_directory(self.path)
        self.disk.rename(self.path, target.path)
        try:
            for folder, named in target._names():
                self.disk.sync_directory(folder)
                if named:
                    target._durable.add(named)
            self.disk.sync_directory(self.path.rpartition("/")[0])
        except StoreError:
            # After an error no stream may be found there.
            self.disk.rename(target.path, self.path)
            raise

    def discard(self) -> None:
        """Remove a stream that is not to be created."""
        self.disk.remove_tree(self.path)

    def staged_batches(self) -> list[str]:
        """The names of the copies of atomic batches that nats-server has left behind."""
        folder = f"{self.path}/{BATCHES_FOLDER}"
        return self.disk.list_directory(folder) if self.disk.exists(folder) else []

    def drop_staged_batches(self) -> None:
        """Remove these copies; nats-server does so at its start, too."""
        self.disk.remove_tree(f"{self.path}/{BATCHES_FOLDER}")

    def delete(self) -> None:
        """Delete the stream with all its messages."""
        make(self.retirement())
        self.remove_retired()

    def retirement(self) -> FolderRemoval:
        """The step that renames the folder, the quick half of `delete`; durably unless lazy."""
        return FolderRemoval(
            self.disk, self.path, self._free_name, self._note_retired, is_lazy=self.is_lazy
        )

    def _note_retired(self, place: str) -> None:
        self._retired.append(place)
        self._durable.discard(self._consumers)

    @property
    def is_retired(self) -> bool:
        """Whether `retirement` has renamed the folder, perhaps not durably yet."""
        return bool(self._retired)

    def remove_retired(self) -> None:
        """Remove the renamed folder, the slow half of `delete`; spares a new stream of its name."""
        if self.is_lazy and self._retired:
            # If the folder is found under its old name, all of it must be there.
            self.disk.sync_directory(self.path.rpartition("/")[0])
        while self._retired:
            self.disk.remove_tree(self._retired[-1])
            self._retired.pop()

    def _free_name(self) -> str:
        """A free name beside those of earlier streams of this name that are being removed."""
        paths = (self._retired_path(f"-{number}" if number else "") for number in count())
        return next(path for path in paths if not self.disk.exists(path))

    def _retired_path(self, suffix: str) -> str:
        # The dot must not make the name too long for the file system.
        room = NAME_BYTES_MAX - 1 - len(suffix)
        name = self.stream.encode()[:room].decode(errors="ignore")
        return f"{self.path.rpartition('/')[0]}/.{name}{suffix}"

    # ---------------------------------------------------------------- its consumers

    def _consumer_folder(self, consumer: str) -> str:
        if problem := name_problem(consumer):
            raise StoreError(f"consumer name {consumer!r} {problem}")
        return f"{self._consumers}/{consumer}"

    def create_consumer(self, meta: ConsumerMeta, state: ConsumerState, now_ns: int) -> None:
        """Create a consumer that starts with `state`, durably."""
        make(self.consumer_creation(meta, state, now_ns))

    def consumer_creation(self, meta: ConsumerMeta, state: ConsumerState, now_ns: int) -> Creation:
        """The steps that create a consumer that starts with `state`."""
        folder = self._consumer_folder(meta.name)
        names = [(self._consumers, "")]
        if self._consumers not in self._durable:
            names.append((self.path, self._consumers))
        content, files = encode_consumer_meta(meta), {}
        state_content, vault = encode_consumer_state(state, now_ns), self.vault
        if vault is not None:
            sealer, key_file = vault.new_consumer(meta.name)
            vault.forget_consumer(meta.name)
            content, state_content = sealer.seal(content), sealer.seal(state_content)
            files[f"{folder}/{META_KEY_FILE}"] = key_file
        files[f"{folder}/{CONSUMER_FILE}"] = state_content
        return Creation(
            self.disk,
            folder,
            content,
            consumer_key_text(self.stream, meta.name),
            check=partial(self._check_no_consumer, folder),
            files=files,
            names=names,
            durable=self._durable,
            is_lazy=self.is_lazy,
        )

    def _check_no_consumer(self, folder: str) -> None:
        if self.disk.exists(folder) and has_meta(self.disk, folder):
            raise StreamExists(f"{folder}: the consumer exists already")
        if self.vault is None:
            with suppress(MissingFile):
                self.disk.remove(f"{folder}/{META_KEY_FILE}")

    def consumer_rewrite(self, meta: ConsumerMeta) -> MetaRewrite:
        """The step that replaces a consumer's configuration."""
        key_text = consumer_key_text(self.stream, meta.name)
        folder = self._consumer_folder(meta.name)
        content, sealer = encode_consumer_meta(meta), self._consumer_sealer(meta.name)
        content = content if sealer is None else sealer.seal(content)
        return MetaRewrite(self.disk, folder, content, key_text)

    def _consumer_sealer(self, consumer: str) -> Sealer | None:
        """The sealer of a consumer; None: it is not encrypted. NotReadable without a main key."""
        folder = self._consumer_folder(consumer)
        if (vault := self.vault) is not None:
            return vault.consumer(consumer, folder)
        if self.disk.exists(f"{folder}/{META_KEY_FILE}"):
            raise NotReadable(
                f"{folder}: the consumer is encrypted, and its stream is not: {META_KEY_FILE} of"
                " the stream is missing, or no key is configured"
            )
        return None

    def _read_logs(self) -> dict[str, list[LogRecord]]:
        """Read the changes since the states were written, by consumer."""
        there = set()
        if self.disk.exists(self._consumers):
            there = set(self.disk.list_directory(self._consumers))
        found: dict[str, list[LogRecord]] = {}
        users: dict[int, set[str]] = {}
        for number in sorted(log_numbers(self.disk.list_directory(self.path))):
            path = f"{self.path}/{log_name(number)}"
            users[number] = set()
            for record in read_log(number, self.disk.read_file(path), path):
                if record.consumer in there:
                    users[number].add(record.consumer)
                    found.setdefault(record.consumer, []).append(record)
        self.states.found(users, 0)
        return found

    def read_consumer(
        self, consumer: str, logs: Mapping[str, list[LogRecord]] | None = None
    ) -> StoredConsumer:
        """Read configuration and state; a consumer without a state file has never delivered.

        The official server does not compare the sum of a consumer. So a wrong one is a `problem`,
        not an error, as long as the configuration can be read. `logs` is for callers that read
        many.
        """
        folder = self._consumer_folder(consumer)
        self.disk.list_directory(folder)  # one that is gone is named as such
        sealer = self._consumer_sealer(consumer)
        found = find_meta(self.disk, folder, consumer_key_text(self.stream, consumer))
        path = f"{folder}/meta.inf"
        meta = decode_consumer_meta(self._unsealed(sealer, found.data, path), path)
        if not meta.name:
            # The official server forgets the name of an ephemeral consumer that it has restarted.
            meta = replace(meta, name=consumer)
        if meta.name != consumer:
            raise CorruptRecord(path, 0, f"it is of consumer {meta.name!r}, not {consumer!r}")
        path = f"{folder}/{CONSUMER_FILE}"
        try:
            data = self.disk.read_file(path)
        except MissingFile:
            data = b""
        data = self._unsealed(sealer, data, path) if data else data
        state, number = decode_with_trailer(data, path)
        records = (self._read_logs() if logs is None else logs).get(consumer, [])
        apply_records(state, number, records)
        self.states.found({}, number)
        problem = found.problem and f"{folder}/meta.inf: {found.problem}"
        return StoredConsumer(meta, state, problem, bool(data), has_log=bool(records))

    def delete_consumer(self, consumer: str) -> None:
        """Delete a consumer, durably."""
        self.forget_consumer(consumer)
        make(self.consumer_removal(consumer))
        self.trash.clear()

    def forget_consumer(self, consumer: str) -> None:
        """Write and sync nothing more of a consumer; for the loop, before it is removed."""
        self.states.forget(consumer)
        self.unsettled.forget(self._consumer_folder(consumer))

    def consumer_removal(self, consumer: str) -> FolderRemoval:
        """The step that removes a consumer for good; its state was forgotten before.

        Its files still exist then, in a folder that `trash` removes.
        """
        folder = self._consumer_folder(consumer)
        if self._vault is not None:
            self._vault.forget_consumer(consumer)
        return FolderRemoval(self.disk, folder, self._trash_path, self.trash.add)

    def _trash_path(self) -> str:
        """A free path for a folder that is going, on the same disk as the stream."""
        paths = (self._retired_path(f"-c{number}") for number in _TRASH_NUMBERS)
        return next(path for path in paths if not self.disk.exists(path))

    def consumers(self) -> tuple[list[StoredConsumer], list[SkippedFolder]]:
        """All consumers that can be read, and the folders of the others, which stay unchanged."""
        found: list[StoredConsumer] = []
        skipped: list[SkippedFolder] = []
        if not self.disk.exists(self._consumers):
            return found, skipped
        logs: dict[str, list[LogRecord]] | None = None
        with suppress(StoreError):  # then it is the reason why each of them cannot be read
            logs = self._read_logs()
        for name in self.disk.list_directory(self._consumers):
            folder = f"{self._consumers}/{name}"
            if not self.disk.is_directory(folder) or self._is_consumer_unfinished(folder):
                continue
            try:
                found.append(self.read_consumer(name, logs))
            except StoreError as error:
                skipped.append(SkippedFolder(folder, str(error)))
        return found, skipped

    def _is_consumer_unfinished(self, folder: str) -> bool:
        """Whether a creation or deletion was cut off here; the next creation reuses the rest."""
        names = self.disk.list_directory(folder)
        if META_SUM_FILE in names:
            return False
        return META_FILE not in names or (DELETED_SUM in names and UNFINISHED_SUM not in names)


class StoreListing(msgspec.Struct):
    """The content of a store: the streams that can be opened, and the folders left alone."""

    streams: list[tuple[StreamFolder, StreamMeta]] = msgspec.field(default_factory=list)
    skipped: list[SkippedFolder] = msgspec.field(default_factory=list)


class StoreRoot:
    """The store below `root` (the configured folder), exclusively locked until `close`."""

    def __init__(
        self, disk: Disk, root: str, ring: MainKeyRing | None = None, *, converts: bool = True
    ) -> None:
        """See `StreamFolder` for `ring`."""
        self.disk = disk
        self.root = root
        self.ring = ring
        self.clock: Callable[[], int] = time.time_ns
        self._converts = converts
        self.folder = f"{root}/{JETSTREAM_FOLDER}"
        disk.make_directory(self.folder, sync=True)
        self._lock = disk.lock(f"{self.folder}/{LOCK_FILE}")
        self._durable: set[str] = set()

    def close(self) -> None:
        """Release the lock for another server."""
        self._lock.release()

    def check_writable(self) -> None:
        """StoreError if the disk is read-only or has found an error in itself, as far as it reports
        that.
        """
        with suppress(MissingFile), self.disk.open(f"{self.folder}/{LOCK_FILE}", writes=True):
            pass

    def stream(self, account: str, stream: str) -> StreamFolder:
        """The folder of a stream, whether it exists or not."""
        folder = StreamFolder(
            self.disk,
            self.root,
            account,
            stream,
            self._durable,
            ring=self.ring,
            converts=self._converts,
        )
        folder.is_chained = self._converts
        folder.clock = self.clock
        return folder

    def staging(self, account: str, stream: str, number: int) -> StreamFolder:
        """The folder where a backup becomes a stream, before it is visible."""
        path = f"{self.folder}/{account}/{SNAPSHOTS_FOLDER}/snap-{number}"
        return StreamFolder(self.disk, self.root, account, stream, path=path, ring=self.ring)

    def accounts(self) -> list[str]:
        """The accounts that have streams here."""
        return [
            name
            for name in self.disk.list_directory(self.folder)
            if self._may_be_directory(f"{self.folder}/{name}/{STREAMS_FOLDER}")
        ]

    def _may_be_directory(self, path: str) -> bool:
        """Whether a path may be a folder; true also for disk errors, which the opening reports."""
        try:
            return self.disk.is_directory(path)
        except DiskFault:
            return True

    def has_templates(self, account: str) -> bool:
        """Whether an account has templates, so that first publishes may create streams."""
        return self.disk.exists(f"{self.folder}/{account}/{TEMPLATES_FILE}")

    def folders(self, account: str) -> list[StreamFolder]:
        """All folders of an account that a stream could have created, whatever is in them."""
        folder = f"{self.folder}/{account}/{STREAMS_FOLDER}"
        if not self.disk.is_directory(folder):
            return []  # it never had a stream
        with self.disk.remembering():
            return [
                self.stream(account, name)
                for name in self.disk.list_directory(folder)
                if not name_problem(name) and self._may_be_directory(f"{folder}/{name}")
            ]

    def streams(self, account: str) -> StoreListing:
        """The streams of an account; nothing on disk changes."""
        listing = StoreListing()
        for folder in self.folders(account):
            try:
                listing.streams.append((folder, folder.read_meta()))
            except StoreError as error:
                listing.skipped.append(SkippedFolder(folder.path, str(error)))
        return listing

    def finish_deletions(self) -> list[str]:
        """Remove the remains of interrupted deletions and restores; returns the paths."""
        removed = []
        for account in self.disk.list_directory(self.folder):
            staged = f"{self.folder}/{account}/{SNAPSHOTS_FOLDER}"
            if self.disk.is_directory(staged):
                self.disk.remove_tree(staged)
                removed.append(staged)
        for account in self.accounts():
            folder = f"{self.folder}/{account}/{STREAMS_FOLDER}"
            for name in self.disk.list_directory(folder):
                if name.startswith(".") and not name_problem(name[1:]):
                    self.disk.remove_tree(f"{folder}/{name}")
                    removed.append(f"{folder}/{name}")
        return removed
