"""A proof that a message is in a chain, complete in one document.

Owns the document and its check, which needs nothing else: not the server, not the stream, not the
other messages. Whether the signer is trusted is for the owner of the key to decide.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from tradewind.chain import checkpoints, merkle
from tradewind.chain.chain_entries import HASH_BYTES, MESSAGE, ChainError, digest_of, link_of
from tradewind.chain.checkpoints import Checkpoint
from tradewind.chain.verifier import ChainedMessage


class MessageProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message, its entry, and the path from there to the root that a checkpoint has signed.

    `header` and `payload` are base64, hashes hex; `before` is the link of the entry before.
    """

    sequence: int
    time_ns: int
    subject: str
    header: bytes
    payload: bytes
    index: int
    before: str
    path: list[str]
    checkpoint: Checkpoint

    @property
    def message(self) -> ChainedMessage:
        """The message that is proved."""
        subject = self.subject.encode()
        return ChainedMessage(self.sequence, self.time_ns, subject, self.header, self.payload)


def make_proof(
    message: ChainedMessage, index: int, before: bytes, path: Sequence[bytes], head: Checkpoint
) -> MessageProof:
    """Create the document and check it; ChainError if the parts do not belong together."""
    try:
        subject = message.subject.decode()
    except UnicodeDecodeError:
        raise ChainError("the subject is not UTF-8, so it cannot stand in a document") from None
    proof = MessageProof(
        sequence=message.sequence,
        time_ns=message.time_ns,
        subject=subject,
        header=message.header,
        payload=message.payload,
        index=index,
        before=before.hex(),
        path=[node.hex() for node in path],
        checkpoint=head,
    )
    check_proof(proof)
    return proof


def decode_proof(data: bytes) -> MessageProof:
    """Decode a JSON document; ChainError describes the error."""
    try:
        return msgspec.json.decode(data, type=MessageProof)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChainError(f"not a proof of a message: {error}") from None


def check_proof(proof: MessageProof, keys: Sequence[str] = ()) -> None:
    """ChainError unless the proof is valid; with `keys`, it must be signed by one of them."""
    head = proof.checkpoint
    checkpoints.check(head)
    if not checkpoints.is_signed(head):
        raise ChainError("the checkpoint is forged: the signature does not match its key")
    if keys and head.key not in keys:
        raise ChainError(f"the checkpoint was signed by another key, {head.key}")
    digest = digest_of(head.algorithm)
    try:
        body = proof.message.body()
    except (struct.error, UnicodeEncodeError) as error:
        raise ChainError(f"no stream has such a message: {error}") from None
    link = link_of(digest, hash_of(proof.before, "before"), MESSAGE, body)
    path = [hash_of(node, "path") for node in proof.path]
    root = hash_of(head.root, "root")
    if not merkle.is_included(digest, proof.index, head.size, link, path, root):
        raise ChainError(
            f"the message is not the one that was chained as entry {proof.index}: it, its place "
            "or its path was changed"
        )


def hash_of(text: str, name: str) -> bytes:
    """Decode a hash in hex; ChainError names the member."""
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != HASH_BYTES:
        raise ChainError(f"{name} must be a hash of {2 * HASH_BYTES} hexadecimal digits")
    return value
