"""Converts streams to another encryption when they are opened: a new key, a new cipher, or from
none.

Owns the steps from the old files to the new ones. Each step leaves a folder that can be opened with
the old and new keys, so that a power failure costs nothing and the next start continues.
nats-server opens such a folder too, and converts in the same order.

- Another main key: the key files are wrapped anew, with the same seeds. No other file changes.
- Another cipher, or none so far: the messages are recovered first, so that the blocks are whole.
  Then the configuration of the stream and its consumers are sealed, and each block is written anew
  with a key of its own.
- A block has two files that cannot take their places together. The new ones are durable under
  other names before the first is renamed; `finish_conversions` finds the two that belong together,
  by reading them.
- index.db is left out: it is written again at the end.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tradewind.errors import StoreError
from tradewind.store.files.disk import MissingFile
from tradewind.store.files.meta_files import find_meta, write_meta
from tradewind.store.files.open_files import OpenFiles
from tradewind.store.files.vault import BlockKeys, FileKey, Sealer, write_key_file
from tradewind.store.format.ciphers import BlockCipher, NotSealedError
from tradewind.store.format.layout import (
    BLOCK_SUFFIX,
    CONSUMER_FILE,
    INDEX_FILE,
    KEY_SUFFIX,
    META_FILE,
    META_KEY_FILE,
    SCHEDULES_FILE,
    block_file_name,
    block_number,
    block_numbers,
    consumer_key_text,
    stream_key_text,
)
from tradewind.store.repair.damage import DAMAGE_FOLDER
from tradewind.store.table.block import Block
from tradewind.store.table.scan import recover_block
from tradewind.store.table.subject_index import SubjectIndex

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk
    from tradewind.store.files.vault import StreamVault

ASIDE_SUFFIX: Final = ".converted"


def unsealed(sealer: Sealer | None, data: bytes, path: str) -> bytes:
    """The content of a file, sealed or not converted yet."""
    if sealer is None:
        return data
    try:
        return sealer.unseal(data, path)
    except NotSealedError:
        if is_plain(data):
            return data
        raise


def is_plain(data: bytes) -> bool:
    """Whether this is a configuration or consumer state that is not encrypted."""
    return data[:1] == b"{" or data[:1] == b"\x16" or not data


# --- key files ------------------------------------------------------------------------------------


def wrap_anew(vault: StreamVault, consumers: list[str], consumers_folder: str) -> None:
    """Wrap all key files with the new main key; that of the stream comes last."""
    disk, blocks = vault.disk, vault.blocks
    for number in block_numbers(disk.list_directory(blocks.folder)):
        with suppress(MissingFile):
            key = blocks.read(number)
            _wrap(vault, key, blocks.path(number), blocks.context(number))
    disk.sync_directory(blocks.folder)
    for consumer in consumers:
        folder = f"{consumers_folder}/{consumer}"
        with suppress(StoreError):  # the error is reported when the consumer is opened
            sealer = vault.consumer(consumer, folder)
            if sealer is not None:
                path = f"{folder}/{META_KEY_FILE}"
                _wrap(vault, sealer.key, path, vault.consumer_context(consumer))
                disk.sync_directory(folder)
    _wrap(vault, vault.key, f"{vault.path}/{META_KEY_FILE}", vault.stream)
    disk.sync_directory(vault.path)


def _wrap(vault: StreamVault, key: FileKey, path: str, context: str) -> None:
    if not key.is_current:
        write_key_file(vault.disk, path, vault.ring.wrapped(key, vault.account, context))


# --- the stream and its consumers -----------------------------------------------------------------


def convert(vault: StreamVault, meta: bytes, consumers: list[str], consumers_folder: str) -> None:
    """Convert a stream that is complete and closed; `meta` is its configuration."""
    disk = vault.disk
    for name in (INDEX_FILE, SCHEDULES_FILE):
        with suppress(MissingFile):
            disk.remove(f"{vault.blocks.folder}/{name}")
    disk.sync_directory(vault.blocks.folder)
    write_key_file(disk, f"{vault.path}/{META_KEY_FILE}", vault.key_file)
    disk.sync_directory(vault.path)
    write_meta(disk, vault.path, vault.seal(meta), stream_key_text(vault.stream))
    _seal_evidence(vault)
    convert_consumers(vault, consumers, consumers_folder)
    # The last, for by these the next start sees that it has to continue.
    for number in block_numbers(disk.list_directory(vault.blocks.folder)):
        _convert_block(vault, number)


def convert_consumers(vault: StreamVault, consumers: list[str], consumers_folder: str) -> None:
    """Convert the consumers that are not encrypted yet, or with another cipher."""
    for consumer in consumers:
        with suppress(StoreError):  # read errors are reported when the consumer is opened
            _convert_consumer(vault, consumer, f"{consumers_folder}/{consumer}")


def _convert_consumer(vault: StreamVault, consumer: str, folder: str) -> None:
    """Convert a consumer. Its seed stays, so that sealed files can be opened with the new key file
    too.
    """
    disk, sealer = vault.disk, vault.consumer(consumer, folder)
    key_text = consumer_key_text(vault.stream, consumer)
    meta_data = find_meta(disk, folder, key_text).data
    is_converted = sealer is not None and sealer.key.kind is vault.ring.kind
    if sealer is not None and is_converted and sealer.is_sealed(meta_data):
        return
    meta = unsealed(sealer, meta_data, f"{folder}/{META_FILE}")
    state, state_path = None, f"{folder}/{CONSUMER_FILE}"
    with suppress(MissingFile):
        state = unsealed(sealer, disk.read_file(state_path), state_path)
    if sealer is None or not is_converted:
        sealer, key_file = vault.new_consumer(consumer, sealer)
        write_key_file(disk, f"{folder}/{META_KEY_FILE}", key_file)
        disk.sync_directory(folder)
    if state is not None:
        disk.write_file_atomically(state_path, sealer.seal(state))
    # The last, for by this the next start sees that it has to continue.
    write_meta(disk, folder, sealer.seal(meta), key_text)
    vault.forget_consumer(consumer)


def _seal_evidence(vault: StreamVault) -> None:
    """Seal saved damaged bytes, which must not be readable by others."""
    disk, folder = vault.disk, f"{vault.path}/{DAMAGE_FOLDER}"
    if not disk.exists(folder):
        return
    names = disk.list_directory(folder)
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if f".{suffix}" not in (".bin", BLOCK_SUFFIX) or stem + KEY_SUFFIX in names:
            continue
        path = f"{folder}/{name}"
        data = disk.read_file(path)
        with suppress(NotSealedError):
            vault.unseal(data, path)
            continue
        disk.write_file_atomically(path, vault.seal(data))


# --- blocks ---------------------------------------------------------------------------------------


def is_mixed(vault: StreamVault) -> bool:
    """Whether some blocks are not converted yet."""
    for number in block_numbers(vault.disk.list_directory(vault.blocks.folder)):
        try:
            if vault.blocks.read(number).kind is not vault.ring.kind:
                return True
        except MissingFile:
            return True
    return False


def _convert_block(vault: StreamVault, number: int) -> None:
    """Rewrite a block with the configured cipher and a key of its own."""
    disk, blocks = vault.disk, vault.blocks
    key: FileKey | None = None
    with suppress(MissingFile):
        key = blocks.read(number)
    if key is not None and key.kind is vault.ring.kind:
        return
    path = f"{blocks.folder}/{block_file_name(number)}"
    content = disk.read_file(path)
    if key is not None:
        content = BlockCipher(key.kind, key.seed, key.nonce).encrypt(content)
    cipher, key_file = blocks.new_key(number)
    with disk.create(path + ASIDE_SUFFIX, replace=True) as file:
        file.write(cipher.encrypt(content), 0)
        file.sync()
    disk.sync_directory(blocks.folder)
    key_path = blocks.path(number)
    write_key_file(disk, key_path + ASIDE_SUFFIX, key_file)
    disk.sync_directory(blocks.folder)
    for name in (key_path, path):
        disk.rename(name + ASIDE_SUFFIX, name)
    disk.sync_directory(blocks.folder)


def finish_conversions(vault: StreamVault) -> None:
    """Complete interrupted conversions of blocks: keep the file and the key that belong
    together.
    """
    disk, blocks = vault.disk, vault.blocks
    names = disk.list_directory(blocks.folder)
    begun = [name.removesuffix(ASIDE_SUFFIX) for name in names if name.endswith(ASIDE_SUFFIX)]
    numbers = {block_number(name.rpartition(".")[0] + BLOCK_SUFFIX) for name in begun} - {0}
    for number in sorted(numbers):
        _finish_block(disk, blocks, vault.stream, number)
    if numbers:
        disk.sync_directory(blocks.folder)


def _finish_block(disk: Disk, blocks: BlockKeys, stream: str, number: int) -> None:
    path, key_path = f"{blocks.folder}/{block_file_name(number)}", blocks.path(number)
    for file in (path, path + ASIDE_SUFFIX):
        for key_file in (key_path, key_path + ASIDE_SUFFIX):
            if not _is_readable(disk, blocks, stream, number, file, key_file):
                continue
            for chosen, name in ((key_file, key_path), (file, path)):
                if chosen != name:
                    disk.rename(chosen, name)
            for left in (path + ASIDE_SUFFIX, key_path + ASIDE_SUFFIX):
                with suppress(MissingFile):
                    disk.remove(left)
            return
    raise StoreError(f"{path}: neither it nor its converted copy can be decrypted by its keys")


def _is_readable(
    disk: Disk, blocks: BlockKeys, stream: str, number: int, path: str, key_path: str
) -> bool:
    """Whether a block file is empty or holds records readable with a key file, or without one."""
    cipher: BlockCipher | None = None
    if not disk.exists(path):
        return False
    if disk.exists(key_path):
        try:
            key = blocks.read_from(number, key_path)
        except StoreError:
            return False
        cipher = BlockCipher(key.kind, key.seed, key.nonce)
    elif key_path.endswith(ASIDE_SUFFIX):
        return False
    block = Block(stream, number, OpenFiles(disk).file(path, cipher))
    block.adopt_file()
    is_readable = not block.size or recover_block(block, SubjectIndex(), 0).records > 0
    block.close()
    return is_readable
