"""Checkpoints: the signed heads of a chain, each one line of JSON.

Owns the text of a checkpoint, its signature and the hash that the next one refers to. It never
reads a chain, and never decides which signer is trusted.

The members stand in the order of `Checkpoint`, without spaces. The signature is Ed25519, in
base64url without padding, over the line without the member `signature`. A line that another program
has written in another form (order, spaces, escapes) is refused: its hash would not be the one that
the next checkpoint has signed.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import Final

import msgspec

from tradewind import nkeys
from tradewind.chain.chain_entries import ALGORITHMS, HASH_BYTES, ChainError

LINE_BYTES_MAX: Final = 1 << 16
_HEX: Final = frozenset("0123456789abcdef")


class CheckpointStatement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The statements of a checkpoint. Hashes are lower case hex.

    `size` entries are covered; `link` is the last of their links, `root` the Merkle root over all
    of them. `previous` is the SHA-256 of the line before, empty in the first. `key` is the public
    nkey of the signer.
    """

    stream: str
    created: str
    algorithm: str
    size: int
    first_seq: int
    last_seq: int
    messages: int
    time: str
    link: str
    root: str
    previous: str
    key: str


class Checkpoint(CheckpointStatement, frozen=True, forbid_unknown_fields=True):
    """A checkpoint with its signature, which may be wrong."""

    signature: str


def sign(unsigned: CheckpointStatement, pair: nkeys.KeyPair) -> Checkpoint:
    """Sign a checkpoint; its `key` becomes that of the pair."""
    fields = {name: getattr(unsigned, name) for name in CheckpointStatement.__struct_fields__}
    fields["key"] = pair.public
    signature = pair.sign(msgspec.json.encode(CheckpointStatement(**fields)))
    return Checkpoint(**fields, signature=urlsafe_b64encode(signature).rstrip(b"=").decode())


def encode(checkpoint: Checkpoint) -> bytes:
    """The line of a checkpoint, without the newline."""
    return msgspec.json.encode(checkpoint)


def decode(line: bytes) -> Checkpoint:
    """Decode a line without the newline; ChainError describes the error."""
    if len(line) > LINE_BYTES_MAX:
        raise ChainError(f"a checkpoint must have at most {LINE_BYTES_MAX} bytes, not {len(line)}")
    try:
        checkpoint = msgspec.json.decode(line, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChainError(f"not a checkpoint: {error}") from None
    check(checkpoint)
    if encode(checkpoint) != line:
        raise ChainError(
            "the members of a checkpoint are in their order, without spaces and needless escapes"
        )
    return checkpoint


def check(checkpoint: Checkpoint) -> None:
    """ChainError if a member cannot be right, regardless of the signature."""
    if checkpoint.algorithm not in ALGORITHMS:
        raise ChainError(
            f"algorithm must be one of {', '.join(ALGORITHMS)}, not {checkpoint.algorithm!r}"
        )
    if checkpoint.size < 1:
        raise ChainError(f"size must be 1 or more, not {checkpoint.size}")
    for name in ("first_seq", "last_seq", "messages"):
        if getattr(checkpoint, name) < 0:
            raise ChainError(f"{name} must be 0 or more, not {getattr(checkpoint, name)}")
    for name in ("link", "root", "previous"):
        text = getattr(checkpoint, name)
        if not (_is_hash(text) or (name == "previous" and not text)):
            raise ChainError(f"{name} must be {2 * HASH_BYTES} hexadecimal digits in lower case")


def digest(line: bytes) -> str:
    """The hash of a line, which the next checkpoint has as `previous`."""
    return hashlib.sha256(line).hexdigest()


def is_signed(checkpoint: Checkpoint) -> bool:
    """Whether the signature is by the key that the checkpoint names."""
    signature = nkeys.decode_signature(checkpoint.signature)
    try:
        key = nkeys.decode_public(checkpoint.key)[1]
    except nkeys.NkeyError:
        return False
    fields = {name: getattr(checkpoint, name) for name in CheckpointStatement.__struct_fields__}
    message = msgspec.json.encode(CheckpointStatement(**fields))
    return signature is not None and nkeys.verify(key, message, signature)


def _is_hash(text: str) -> bool:
    return len(text) == 2 * HASH_BYTES and _HEX.issuperset(text)
