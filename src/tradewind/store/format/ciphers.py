"""Encryption at rest, byte for byte as in nats-server: two ciphers, and keys in key files.

Owns the primitives and the format of a key file. It never touches the disk, and never knows about
streams or blocks. It is imported only if a store is encrypted, because its library takes time to
load.

    key that wraps  HMAC-SHA256(main key, account name ++ context)
    key file        nonce ++ AEAD(key that wraps, nonce, seed)          the seed: 32 random bytes
    sealed file     nonce ++ AEAD(seed, nonce, content)                 a new nonce at each write
    block file      content XOR keystream(seed, the nonce of its key file); byte k of the keystream
                    belongs to byte k of the file, and nothing is added

                    AEAD                                        keystream
    chacha          XChaCha20-Poly1305, nonce of 24 bytes       XChaCha20, counter from 0
    aes             AES-256-GCM, nonce of 16 bytes              AES-256-CTR from the nonce
"""

from __future__ import annotations

import hmac
import os
import struct
from typing import Any, Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from tradewind.errors import CorruptRecord

Buffer = bytes | bytearray | memoryview

SEED_BYTES: Final = 32
TAG_BYTES: Final = 16
# Bytes that never reached the disk are sectors of zeros, which no ciphertext has.
SECTOR_BYTES: Final = 512
_NO_SECTOR: Final = bytes(SECTOR_BYTES)
_WORDS: Final = struct.Struct("<4I")
_SIGMA: Final = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)


class NotSealedError(CorruptRecord):
    """A sealed content cannot be opened: it is of another key, or damaged."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(path, 0, reason)


class _Context(Protocol):
    def update(self, data: Any) -> bytes: ...


class CipherKind(Protocol):
    """One of the two ciphers."""

    name: str  # in the configuration
    title: str  # in the log
    nonce_bytes: int

    def seal(self, key: bytes, nonce: bytes, content: bytes) -> bytes:
        """The sealed content with its tag, without the nonce."""

    def unseal(self, key: bytes, nonce: bytes, sealed: bytes) -> bytes:
        """The content; InvalidTag if it was changed."""

    def keystream(self, seed: bytes, nonce: bytes, offset: int) -> _Context:
        """The transformation of a block's bytes from `offset` on to those of its file, and back."""


class _ChaCha:
    name = "chacha"
    title = "ChaCha20-Poly1305"
    nonce_bytes = 24

    def seal(self, key: bytes, nonce: bytes, content: bytes) -> bytes:
        """See `CipherKind`."""
        return ChaCha20Poly1305(hchacha20(key, nonce[:16])).encrypt(_short(nonce), content, None)

    def unseal(self, key: bytes, nonce: bytes, sealed: bytes) -> bytes:
        """See `CipherKind`."""
        return ChaCha20Poly1305(hchacha20(key, nonce[:16])).decrypt(_short(nonce), sealed, None)

    def keystream(self, seed: bytes, nonce: bytes, offset: int) -> _Context:
        """See `CipherKind`."""
        block, rest = divmod(offset, 64)
        start = block.to_bytes(4, "little") + _short(nonce)
        algorithm = algorithms.ChaCha20(hchacha20(seed, nonce[:16]), start)
        context = Cipher(algorithm, mode=None).encryptor()
        context.update(bytes(rest))
        return context


class _Aes:
    name = "aes"
    title = "AES-GCM"
    nonce_bytes = 16

    def seal(self, key: bytes, nonce: bytes, content: bytes) -> bytes:
        """See `CipherKind`."""
        return AESGCM(key).encrypt(nonce, content, None)

    def unseal(self, key: bytes, nonce: bytes, sealed: bytes) -> bytes:
        """See `CipherKind`."""
        return AESGCM(key).decrypt(nonce, sealed, None)

    def keystream(self, seed: bytes, nonce: bytes, offset: int) -> _Context:
        """See `CipherKind`."""
        block, rest = divmod(offset, 16)
        counter = int.from_bytes(nonce, "big") + block & (1 << 128) - 1
        context = Cipher(algorithms.AES(seed), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
        context.update(bytes(rest))
        return context


CHACHA: Final[CipherKind] = _ChaCha()
AES: Final[CipherKind] = _Aes()
KINDS: Final = {"chacha": CHACHA, "chachapoly": CHACHA, "aes": AES}


def _short(nonce: bytes) -> bytes:
    """The nonce of the inner cipher."""
    return bytes(4) + nonce[16:24]


def hchacha20(key: bytes, head: bytes) -> bytes:
    """The key of the inner cipher, from the first 16 bytes of the nonce.

    That is the state of ChaCha20 after its rounds, words 0 to 3 and 12 to 15. A keystream is this
    state plus the one it began with, so the latter is subtracted again.
    """
    block = Cipher(algorithms.ChaCha20(key, head), mode=None).encryptor().update(bytes(64))
    first = (word - begin for word, begin in zip(_WORDS.unpack(block[:16]), _SIGMA, strict=True))
    last = (
        word - begin
        for word, begin in zip(_WORDS.unpack(block[48:]), _WORDS.unpack(head), strict=True)
    )
    return b"".join((word & 0xFFFFFFFF).to_bytes(4, "little") for word in (*first, *last))


def wrapping_key(main_key: str, account: str, context: str) -> bytes:
    """The key that a key file is sealed with."""
    return hmac.digest(main_key.encode(), account.encode() + context.encode(), "sha256")


def seal(kind: CipherKind, key: bytes, content: bytes, nonce: bytes = b"") -> bytes:
    """Seal a file; without `nonce` under a new one."""
    nonce = nonce or os.urandom(kind.nonce_bytes)
    return nonce + kind.seal(key, nonce, content)


def unseal(kind: CipherKind, key: bytes, sealed: bytes) -> bytes:
    """Open a sealed file; NotSealedError if it is not one of this key."""
    size = kind.nonce_bytes
    if len(sealed) < size + TAG_BYTES:
        raise NotSealedError(f"{len(sealed)} bytes are too few for a sealed content")
    try:
        return kind.unseal(key, sealed[:size], sealed[size:])
    except InvalidTag:
        raise NotSealedError("it is of another key, or damaged") from None


def kind_of_key_file(size: int) -> CipherKind | None:
    """The cipher that has key files of this size."""
    for kind in (CHACHA, AES):
        if size == kind.nonce_bytes + SEED_BYTES + TAG_BYTES:
            return kind
    return None


class BlockCipher:
    """The keystream of one block file."""

    def __init__(self, kind: CipherKind, seed: bytes, nonce: bytes) -> None:
        self.kind = kind
        self._seed = seed
        self._nonce = nonce
        self._at = -1
        self._context: _Context | None = None

    def encrypt(self, content: Buffer, offset: int = 0) -> bytes:
        """The bytes for the file at `offset`; may be called from any thread."""
        return self.kind.keystream(self._seed, self._nonce, offset).update(content)

    def append(self, content: Buffer, offset: int) -> bytes:
        """Encrypt appended bytes, in the appending thread: the keystream continues where it
        ended.
        """
        context = self._context
        if context is None or self._at != offset:
            context = self._context = self.kind.keystream(self._seed, self._nonce, offset)
        self._at = offset + len(content)
        return context.update(content)

    def decrypt(self, stored: bytes, offset: int = 0) -> bytes:
        """Decrypt stored bytes; whole sectors of zeros, which were never written, stay zeros."""
        content = self.encrypt(stored, offset)
        if _NO_SECTOR not in stored:
            return content
        plain = bytearray(content)
        for start in range(-offset % SECTOR_BYTES, len(stored), SECTOR_BYTES):
            end = min(start + SECTOR_BYTES, len(stored))
            if end - start == SECTOR_BYTES and stored[start:end] == _NO_SECTOR:
                plain[start:end] = _NO_SECTOR
        return bytes(plain)
