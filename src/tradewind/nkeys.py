"""Nkeys: Ed25519 keys as short base32 text whose first letter names their purpose.

Owns the text format, signatures and the boxes of curve keys. It never stores a key and never
decides about permissions.

    public key   base32( prefix(1)  key(32)   crc16(2, little endian) )   56 characters, "U..."
    seed         base32( prefix(2)  seed(32)  crc16(2, little endian) )   58 characters, "SU..."

The first base32 letter carries five bits, so a prefix byte is the letter's number shifted left by
three. A seed has two letters: S, then the kind of key; its second letter is spread over both prefix
bytes.

A curve key ("X...") is an X25519 key, which cannot sign. Two curve keys make boxes that only their
owners can open, and that prove who made them.

    box          "xkv1"  nonce(24)  XSalsa20-Poly1305(message)
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from nacl.public import Box

SERVER = "N"
CLUSTER = "C"
OPERATOR = "O"
ACCOUNT = "A"
USER = "U"
CURVE = "X"
SEED = "S"
KINDS = {
    SERVER: "server",
    CLUSTER: "cluster",
    OPERATOR: "operator",
    ACCOUNT: "account",
    USER: "user",
    CURVE: "curve",
}

KEY_BYTES = 32
SIGNATURE_BYTES = 64
PUBLIC_LENGTH = 56
SEED_LENGTH = 58
SIGNATURE_TEXT_LENGTH_MAX = 88  # 64 bytes of base64 with padding

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE32 = re.compile(r"[A-Z2-7]+\Z")
_SEED_PREFIX = _ALPHABET.index(SEED) << 3
_CRC_BYTES = 2
_BOX_MARK = b"xkv1"


class NkeyError(TradewindError):
    """A text is not the expected nkey. The text is never repeated here: it may be a seed."""


class KeyPair:
    """A private key with its kind, for clients, tools and tests; prints as its public key."""

    __slots__ = ("_signing_key", "kind")

    def __init__(self, kind: str, raw_seed: bytes) -> None:
        _check_kind(kind)
        if kind == CURVE:
            raise NkeyError(
                "a curve key encrypts and cannot sign: use a user, account or operator key"
            )
        if len(raw_seed) != KEY_BYTES:
            raise NkeyError(f"a raw seed must have {KEY_BYTES} bytes, not {len(raw_seed)}")
        # Loaded when it is needed: a server without nkey users starts sooner.
        from nacl.signing import SigningKey

        self.kind = kind
        self._signing_key = SigningKey(raw_seed)

    @classmethod
    def create(cls, kind: str, entropy: Callable[[int], bytes] = os.urandom) -> KeyPair:
        """A new key from `entropy`."""
        return cls(kind, entropy(KEY_BYTES))

    @classmethod
    def from_seed(cls, text: str) -> KeyPair:
        """The key of a seed text such as "SU..."."""
        return cls(*decode_seed(text))

    @property
    def public(self) -> str:
        """The public key as text."""
        return encode_public(self.kind, bytes(self._signing_key.verify_key))

    @property
    def seed(self) -> str:
        """The seed as text, which gives full control of the key."""
        return encode_seed(self.kind, bytes(self._signing_key))

    def sign(self, message: bytes) -> bytes:
        """The 64 byte signature of `message`."""
        return self._signing_key.sign(message).signature

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


class CurveKeyPair:
    """A private curve key; prints as its public key."""

    __slots__ = ("_private_key",)

    def __init__(self, raw_seed: bytes) -> None:
        if len(raw_seed) != KEY_BYTES:
            raise NkeyError(f"a raw seed must have {KEY_BYTES} bytes, not {len(raw_seed)}")
        from nacl.public import PrivateKey

        self._private_key = PrivateKey(raw_seed)

    @classmethod
    def create(cls, entropy: Callable[[int], bytes] = os.urandom) -> CurveKeyPair:
        """A new key from `entropy`."""
        return cls(entropy(KEY_BYTES))

    @classmethod
    def from_seed(cls, text: str) -> CurveKeyPair:
        """The key of a seed text "SX..."."""
        kind, raw_seed = decode_seed(text)
        if kind != CURVE:
            raise NkeyError(f"its kind must be curve (SX...), not {KINDS[kind]} (S{kind}...)")
        return cls(raw_seed)

    @property
    def public(self) -> str:
        """The public key as text."""
        return encode_public(CURVE, bytes(self._private_key.public_key))

    @property
    def seed(self) -> str:
        """The seed as text, which gives full control of the key."""
        return encode_seed(CURVE, bytes(self._private_key))

    def seal(self, message: bytes, recipient: str) -> bytes:
        """A box that only the curve key `recipient` can open."""
        return _BOX_MARK + bytes(self._box(recipient).encrypt(message))

    def open(self, box: bytes, sender: str) -> bytes:
        """The message that the curve key `sender` has put into a box for this key; NkeyError
        otherwise.
        """
        from nacl.exceptions import CryptoError

        if not box.startswith(_BOX_MARK):
            raise NkeyError(f"a box must begin with {_BOX_MARK.decode()}")
        try:
            return bytes(self._box(sender).decrypt(box[len(_BOX_MARK) :]))
        except (CryptoError, ValueError):
            raise NkeyError("the box was not made by this sender for this key") from None

    def _box(self, other: str) -> Box:
        from nacl.exceptions import CryptoError
        from nacl.public import Box, PublicKey

        key = decode_public(other, CURVE)[1]
        try:
            return Box(self._private_key, PublicKey(key))
        except CryptoError:  # a point of small order, for which all boxes would be equal
            raise NkeyError("the other curve key is not usable") from None

    def __repr__(self) -> str:
        return f"CurveKeyPair({self.public})"


def create_server_id(entropy: Callable[[int], bytes] = os.urandom) -> str:
    """A new server id: random, in the form of a server's public key, of which no private key
    exists.
    """
    return encode_public(SERVER, entropy(KEY_BYTES))


def encode_public(kind: str, key: bytes) -> str:
    """The text of a public key."""
    _check_kind(kind)
    if len(key) != KEY_BYTES:
        raise NkeyError(f"a public key must have {KEY_BYTES} bytes, not {len(key)}")
    return _encode(bytes([_ALPHABET.index(kind) << 3]) + key)


def decode_public(text: str, kind: str = "") -> tuple[str, bytes]:
    """The kind letter and the 32 bytes of a public key; with `kind`, any other is refused."""
    # The length is checked first: nothing below ever sees a short or an endless text.
    if len(text) != PUBLIC_LENGTH:
        raise NkeyError(f"a public nkey must have {PUBLIC_LENGTH} characters, not {len(text)}")
    payload = _decode(text)
    found = text[0]
    if payload[0] != _ALPHABET.index(found) << 3 or found not in KINDS:
        raise NkeyError(
            f"a public nkey must start with one of {', '.join(KINDS)}, then a letter from A to D"
        )
    if kind and found != kind:
        raise NkeyError(
            f"its kind must be {KINDS[kind]} ({kind}...), not {KINDS[found]} ({found}...)"
        )
    return found, payload[1:]


def is_public(text: str, kind: str = "") -> bool:
    """Whether `text` is a valid public key (of `kind`, when given)."""
    try:
        decode_public(text, kind)
    except NkeyError:
        return False
    return True


def encode_seed(kind: str, raw_seed: bytes) -> str:
    """The text of a seed."""
    _check_kind(kind)
    if len(raw_seed) != KEY_BYTES:
        raise NkeyError(f"a raw seed must have {KEY_BYTES} bytes, not {len(raw_seed)}")
    prefix = _ALPHABET.index(kind) << 3
    return _encode(bytes([_SEED_PREFIX | prefix >> 5, (prefix & 31) << 3]) + raw_seed)


def decode_seed(text: str) -> tuple[str, bytes]:
    """The kind letter and the 32 seed bytes of a seed text."""
    if len(text) != SEED_LENGTH:
        raise NkeyError(f"an nkey seed must have {SEED_LENGTH} characters, not {len(text)}")
    payload = _decode(text)
    if text[0] != SEED:
        raise NkeyError("an nkey seed must start with S")
    kind = _ALPHABET[((payload[0] & 7) << 5 | payload[1] >> 3) >> 3]
    if kind not in KINDS or text != encode_seed(kind, payload[2:]):
        raise NkeyError(f"the second letter of an nkey seed must be one of {', '.join(KINDS)}")
    return kind, payload[2:]


def decode_signature(text: str) -> bytes | None:
    """The 64 bytes of a signature in base64 (URL or standard alphabet, padded or not), or None."""
    if len(text) > SIGNATURE_TEXT_LENGTH_MAX:
        return None
    standard = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        raw = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except ValueError:  # from binascii.Error, or for text outside ASCII
        return None
    return raw if len(raw) == SIGNATURE_BYTES else None


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` over `message` was made by the holder of `public_key` (32 raw bytes)."""
    if len(public_key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(public_key).verify(message, signature)
    except BadSignatureError:
        return False
    return True


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise NkeyError(f"the kind of an nkey must be one of {', '.join(KINDS)}")


def _encode(payload: bytes) -> str:
    checked = payload + _checksum(payload)
    return base64.b32encode(checked).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    if not _BASE32.match(text):
        raise NkeyError("an nkey must have only the letters A to Z and the digits 2 to 7")
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    payload, checksum = raw[:-_CRC_BYTES], raw[-_CRC_BYTES:]
    if checksum != _checksum(payload):
        raise NkeyError("the nkey's checksum is wrong: a character was changed or lost")
    return payload


def _checksum(payload: bytes) -> bytes:
    """The checksum of nkeys: CRC-16/XMODEM, little endian."""
    return binascii.crc_hqx(payload, 0).to_bytes(_CRC_BYTES, "little")
