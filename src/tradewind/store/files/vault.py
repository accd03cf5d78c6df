"""The keys of an encrypted stream: from the server's main key to the cipher of each file.

Owns the key files of a stream, its blocks and its consumers, and the order in which those of blocks
reach the disk. It never implements a cipher, which is up to `ciphers`. It is imported only if a
store is encrypted.

Order rules, which every crash test checks
- the key file of a block is durable, with its name, before the block file is made: so a block
  without its key has lost it, and is never the rest of a crash. Commits write the keys of the next
  blocks ahead, so that no write waits for them;
- a key file is removed when the removal of its block is durable: names may reach the disk in any
  order, and a block that comes back needs its key;
- a key file that is there is never replaced by one with another seed, but by `convert`.

A key that cannot be used is an `UnusableKey`, which names the file. The code that gets one leaves
everything as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.errors import StoreError
from tradewind.store.files.disk import TEMPORARY_SUFFIX, MissingFile
from tradewind.store.format.ciphers import (
    AES,
    CHACHA,
    KINDS,
    SEED_BYTES,
    TAG_BYTES,
    BlockCipher,
    CipherKind,
    NotSealedError,
    kind_of_key_file,
    seal,
    unseal,
    wrapping_key,
)
from tradewind.store.format.hash import key_for
from tradewind.store.format.layout import (
    CHECKSUM_BYTES,
    META_KEY_FILE,
    block_key_file_name,
    block_key_number,
    stream_key_text,
)

if TYPE_CHECKING:
    from tradewind.options import EncryptionOptions
    from tradewind.store.files.disk import Disk

# Keys of blocks that are made ahead at most; as many as blocks were begun without one.
KEYS_AHEAD_MAX: Final = 32
KEY_FILE_SIZES: Final = tuple(kind.nonce_bytes + SEED_BYTES + TAG_BYTES for kind in (AES, CHACHA))


class UnusableKey(StoreError):  # noqa: N818 - it names what was found
    """A key file is missing, damaged, or of another main key."""


class FileKey(msgspec.Struct, frozen=True):
    """The content of a key file. `is_current`: it is wrapped with the current main key."""

    kind: CipherKind
    seed: bytes
    nonce: bytes
    is_current: bool = True

    def __repr__(self) -> str:
        return f"FileKey({self.kind.name})"


class MainKeyRing:
    """The main keys of a store: the current one, and the previous one, for the keys that it still
    wraps.
    """

    def __init__(
        self, options: EncryptionOptions, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.kind = KINDS[options.cipher]
        self._random = random
        self._main = [options.key] + [options.previous_key] * bool(options.previous_key)

    def new_key(self) -> FileKey:
        """Create a random seed, for the configured cipher."""
        return FileKey(self.kind, self._random(SEED_BYTES), self._random(self.kind.nonce_bytes))

    def wrapped(self, key: FileKey, account: str, context: str) -> bytes:
        """The key file of this key, wrapped with the current main key."""
        outer = wrapping_key(self._main[0].reveal(), account, context)
        return seal(key.kind, outer, key.seed, key.nonce)

    def read(self, disk: Disk, path: str, account: str, context: str) -> FileKey:
        """Read the key in a key file; UnusableKey gives the reason if that fails."""
        data = disk.read_file(path)
        kind = kind_of_key_file(len(data))
        if kind is None:
            expected = " or ".join(map(str, KEY_FILE_SIZES))
            raise UnusableKey(
                f"{path}: the key file is damaged: it has {len(data)} bytes, not {expected};"
                " put it back from a copy"
            )
        for main in self._main:
            with suppress(NotSealedError):
                seed = unseal(kind, wrapping_key(main.reveal(), account, context), data)
                return FileKey(kind, seed, data[: kind.nonce_bytes], main is self._main[0])
        named = "key and prev_key do" if len(self._main) > 1 else "key does"
        raise UnusableKey(
            f"{path}: the configured {named} not open this key file: configure the key that it was"
            " made with, or put the file back if it is damaged"
        )


class Sealer:
    """Seals and opens the files of one stream or consumer with its key."""

    def __init__(self, key: FileKey) -> None:
        self.key = key

    def seal(self, content: bytes) -> bytes:
        """Seal the content of a file."""
        return seal(self.key.kind, self.key.seed, content)

    def is_sealed(self, data: bytes) -> bool:
        """Whether this is a file sealed with this key."""
        with suppress(NotSealedError):
            unseal(self.key.kind, self.key.seed, data)
            return True
        return False

    def unseal(self, data: bytes, path: str) -> bytes:
        """Open a sealed file; NotSealedError names it.

        A conversion to the other cipher keeps the seed, and may not have reached this file.
        """
        for kind in (self.key.kind, AES, CHACHA):
            with suppress(NotSealedError):
                return unseal(kind, self.key.seed, data)
        raise NotSealedError("it cannot be decrypted: it is of another key, or damaged", path)


class StreamVault(Sealer):
    """The keys of one stream, below `path`."""

    def __init__(
        self, disk: Disk, ring: MainKeyRing, account: str, stream: str, path: str, key: FileKey
    ) -> None:
        super().__init__(key)
        self.disk = disk
        self.ring = ring
        self.account = account
        self.stream = stream
        self.path = path
        self.blocks = BlockKeys(self)
        self._consumers: dict[str, Sealer] = {}

    @property
    def key_file(self) -> bytes:
        """The content of the stream's meta.key."""
        return self.ring.wrapped(self.key, self.account, self.stream)

    def seal_index(self, content: bytes) -> bytes:
        """Seal an index.db: the hash at its end is that of the sealed bytes."""
        sealed = self.seal(content[:-CHECKSUM_BYTES])
        return sealed + key_for(stream_key_text(self.stream)).hash(sealed)

    def unseal_index(self, data: bytes, path: str) -> bytes:
        """Open a sealed index.db; the result ends with the hash of the plain content."""
        sealed, end = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
        hash_key = key_for(stream_key_text(self.stream))
        if hash_key.hash(sealed) != end:
            raise NotSealedError("the hash is not that of the bytes before it", path)
        content = self.unseal(sealed, path)
        return content + hash_key.hash(content)

    # -------------------------------------------------------------- consumers

    def consumer_context(self, consumer: str) -> str:
        """The context in which the key of a consumer is wrapped."""
        return f"{self.stream}.{consumer}"

    def new_consumer(self, consumer: str, old: Sealer | None = None) -> tuple[Sealer, bytes]:
        """Create a key for a consumer that is being created or converted, and its key file."""
        key = self.ring.new_key()
        if old is not None:
            key = FileKey(key.kind, old.key.seed, key.nonce)
        return Sealer(key), self.ring.wrapped(key, self.account, self.consumer_context(consumer))

    def consumer(self, consumer: str, folder: str) -> Sealer | None:
        """The key of an existing consumer; None: it is not encrypted yet."""
        if consumer not in self._consumers:
            path = f"{folder}/{META_KEY_FILE}"
            try:
                key = self.ring.read(self.disk, path, self.account, self.consumer_context(consumer))
            except MissingFile:
                return None
            self._consumers[consumer] = Sealer(key)
        return self._consumers[consumer]

    def forget_consumer(self, consumer: str) -> None:
        """Forget the key of a deleted consumer; another one of its name has another key."""
        self._consumers.pop(consumer, None)


class KeyWrite:
    """The keys of the next blocks to be written; `save` is for the worker of a commit.

    The sync of the folder that follows makes their names durable. If there is no room nothing is
    lost: the key is made when its block is.
    """

    def __init__(self, disk: Disk, files: dict[int, tuple[str, bytes]]) -> None:
        self._disk = disk
        self._files = files
        self.saved: list[int] = []

    def save(self) -> None:
        """Write the key files, durably except for their names."""
        with suppress(StoreError):
            for number, (path, content) in self._files.items():
                write_key_file(self._disk, path, content)
                self.saved.append(number)


def write_key_file(disk: Disk, path: str, content: bytes, aside: str = "") -> None:
    """Write a key file; the sync of its folder makes its name durable."""
    aside = aside or path + TEMPORARY_SUFFIX
    with disk.create(aside, replace=True) as file:
        file.write(content, 0)
        file.sync()
    disk.rename(aside, path)


class BlockKeys:
    """The keys of the blocks of one stream; at most `ahead_max` are made ahead."""

    ahead_max = KEYS_AHEAD_MAX

    def __init__(self, vault: StreamVault) -> None:
        self._vault = vault
        self._disk = vault.disk
        self._keys: dict[int, FileKey] = {}
        self._ready: set[int] = set()  # made ahead, durable
        self._coming: dict[int, FileKey] = {}  # a commit writes them
        self._found: dict[int, FileKey] = {}  # made ahead before the store was opened
        self._ahead = 1

    @property
    def folder(self) -> str:
        """The folder of the key files."""
        return f"{self._vault.path}/msgs"

    def path(self, number: int) -> str:
        """The key file of a block."""
        return f"{self.folder}/{block_key_file_name(number)}"

    def context(self, number: int) -> str:
        """The context in which the key of a block is wrapped."""
        return f"{self._vault.stream}:{number}"

    def read(self, number: int) -> FileKey:
        """Read the key of an existing block; UnusableKey or MissingFile give the reason if that
        fails.
        """
        self._keys.pop(number, None)
        key = self._keys[number] = self.read_from(number, self.path(number))
        return key

    def read_from(self, number: int, path: str) -> FileKey:
        """Read the key of a block from another file, without storing it."""
        vault = self._vault
        return vault.ring.read(self._disk, path, vault.account, self.context(number))

    def new_key(self, number: int) -> tuple[BlockCipher, bytes]:
        """Create another key for a block that is rewritten, and its key file."""
        key = self._vault.ring.new_key()
        return BlockCipher(key.kind, key.seed, key.nonce), self._wrapped(number, key)

    def cipher(self, number: int) -> BlockCipher | None:
        """The cipher of a block whose key is known; None: the block is not encrypted."""
        key = self._keys.get(number)
        return None if key is None else BlockCipher(key.kind, key.seed, key.nonce)

    def first(self) -> tuple[BlockCipher, dict[str, bytes]]:
        """The cipher of the first block of a new stream, and its key file."""
        key = self._keys[1] = self._vault.ring.new_key()
        return BlockCipher(key.kind, key.seed, key.nonce), {self.path(1): self._wrapped(1, key)}

    def _wrapped(self, number: int, key: FileKey) -> bytes:
        return self._vault.ring.wrapped(key, self._vault.account, self.context(number))

    # -------------------------------------------------------------- ahead of the blocks

    def take(self, number: int) -> BlockCipher:
        """The cipher of a block that is about to be created. Its key file is durable."""
        if number not in self._ready:
            self._ahead = min(self._ahead * 2, self.ahead_max)
            self._make(number)
        self._ready.discard(number)
        cipher = self.cipher(number)
        assert cipher is not None
        return cipher

    def _make(self, number: int) -> None:
        """Write a key file at once, while a worker may be writing the same file."""
        key = self._keys[number] = self._next_key(number)
        path = self.path(number)
        write_key_file(self._disk, path, self._wrapped(number, key), aside=f"{path}.new")
        self._disk.sync_directory(self.folder)

    def _next_key(self, number: int) -> FileKey:
        """The key for a block that does not exist yet: always the same for one number."""
        return self._coming.get(number) or self._found.get(number) or self._vault.ring.new_key()

    def wants(self, last: int) -> bool:
        """Whether keys are to be made ahead, `last` being the number of the last block."""
        return not self._coming and any(
            number not in self._ready for number in range(last + 1, last + 1 + self._ahead)
        )

    def prepare(self, last: int) -> KeyWrite:
        """Create the missing keys, for the worker of a commit."""
        for number in range(last + 1, last + 1 + self._ahead):
            if number not in self._ready:
                self._coming[number] = self._next_key(number)
        files = {
            number: (self.path(number), self._wrapped(number, key))
            for number, key in self._coming.items()
        }
        return KeyWrite(self._disk, files)

    def prepared(self, write: KeyWrite | None) -> None:
        """Adopt the written keys after the commit, whose names are durable; None: it has failed."""
        for number in write.saved if write is not None else ():
            if number not in self._keys:  # else its block could not wait
                self._keys[number] = self._coming[number]
                self._ready.add(number)
        self._coming.clear()

    # -------------------------------------------------------------- of blocks that are gone

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove the keys of blocks whose removal is durable."""
        for number in numbers:
            self._keys.pop(number, None)
            with suppress(MissingFile):
                self._disk.remove(self.path(number))

    def adopt_folder(self, names: list[str], blocks: list[int]) -> None:
        """Called by recovery with the content of the folder. Keys of missing blocks are removed;
        those of later blocks are used for them.
        """
        known, last = set(blocks), max(blocks, default=0)
        numbers = {number for name in names if (number := block_key_number(name))} - known
        for number in (number for number in numbers if number > last):
            with suppress(UnusableKey, MissingFile):
                key = self.read_from(number, self.path(number))
                if key.kind is self._vault.ring.kind:
                    self._found[number] = key
        if gone := [number for number in numbers if number <= last]:
            # The blocks may be gone for the system only.
            self._disk.sync_directory(self.folder)
            self.remove(gone)
