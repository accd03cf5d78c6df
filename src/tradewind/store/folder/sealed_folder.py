"""The additions for an encrypted stream when its folder is created and opened.

Owns finding the keys of a stream's folder, and when it is converted. It is imported only if a key
is configured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tradewind.errors import StoreError
from tradewind.store.files.disk import MissingFile
from tradewind.store.files.vault import FileKey, MainKeyRing, StreamVault
from tradewind.store.folder.conversion import (
    convert,
    convert_consumers,
    finish_conversions,
    is_mixed,
    wrap_anew,
)
from tradewind.store.format.layout import CONSUMERS_FOLDER, MESSAGES_FOLDER, META_KEY_FILE
from tradewind.store.format.meta import StreamMeta, encode_stream_meta

if TYPE_CHECKING:
    from tradewind.store.folder.filestore import FileStore
    from tradewind.store.folder.recover import RecoveryReport
    from tradewind.store.folder.stream_folder import StreamFolder


def sealed_creation(
    folder: StreamFolder, ring: MainKeyRing, meta: bytes, files: dict[str, bytes]
) -> tuple[StreamVault, bytes, dict[str, bytes]]:
    """Encrypt a new stream: its keys, its configuration and its files as they are on disk."""
    vault = _vault(folder, ring, ring.new_key())
    cipher, keys = vault.blocks.first()
    sealed = {path: cipher.encrypt(content) for path, content in files.items()}
    meta_key = {f"{folder.path}/{META_KEY_FILE}": vault.key_file}
    return vault, vault.seal(meta), {**meta_key, **keys, **sealed}


def read_vault(folder: StreamFolder, ring: MainKeyRing) -> StreamVault:
    """Read the keys of an existing stream; UnusableKey gives the reason if that fails."""
    path = f"{folder.path}/{META_KEY_FILE}"
    return _vault(folder, ring, ring.read(folder.disk, path, folder.account, folder.stream))


def _vault(folder: StreamFolder, ring: MainKeyRing, key: FileKey) -> StreamVault:
    return StreamVault(folder.disk, ring, folder.account, folder.stream, folder.path, key)


def convert_stream(
    folder: StreamFolder,
    ring: MainKeyRing,
    vault: StreamVault | None,
    meta: StreamMeta,
    open_now: Callable[[StreamVault | None], tuple[FileStore, RecoveryReport]],
) -> tuple[StreamVault, RecoveryReport | None]:
    """Encrypt a stream with the configured key and cipher.

    `open_now` opens its messages with the previous keys. Returns the new keys, and the report of
    that opening.
    """
    consumers_folder = f"{folder.path}/{CONSUMERS_FOLDER}"
    consumers = _folders(folder, consumers_folder)
    has_blocks = folder.disk.exists(f"{folder.path}/{MESSAGES_FOLDER}")
    if vault is not None:
        if has_blocks:
            finish_conversions(vault)
        if not vault.key.is_current:
            wrap_anew(vault, consumers, consumers_folder)
            vault = read_vault(folder, ring)
        if vault.key.kind is ring.kind and not (has_blocks and is_mixed(vault)):
            convert_consumers(vault, consumers, consumers_folder)
            return vault, None
    # The remains of a crash are resolved with the old keys, which fit these bytes.
    store, report = open_now(vault)
    store.close()
    if store.failure is not None:
        raise StoreError(f"{folder.path}: it cannot be encrypted: {store.failure}")
    key = ring.new_key()
    if vault is not None:
        key = FileKey(key.kind, vault.key.seed, key.nonce)  # see `Sealer.unseal`
    convert(_vault(folder, ring, key), encode_stream_meta(meta), consumers, consumers_folder)
    return _vault(folder, ring, key), report


def _folders(folder: StreamFolder, path: str) -> list[str]:
    try:
        names = folder.disk.list_directory(path)
    except MissingFile:
        return []
    return [name for name in names if folder.disk.is_directory(f"{path}/{name}")]
