"""Hash chains of streams: heads, proofs, entries, verification. Needs a tradewind-server.

Owns the calls of that part of the API. `tradewind.chain` defines what their answers mean, and
`chain_verifying` verifies a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tradewind.api.chain import (
    ENTRIES_MAX,
    ChainCheckpoint,
    ChainEntries,
    ChainEntriesRequest,
    ChainInfo,
    ChainProof,
    ChainProofRequest,
)
from tradewind.chain import merkle
from tradewind.chain.chain_entries import digest_of
from tradewind.chain.proofs import MessageProof, hash_of, make_proof
from tradewind.client.errors import BadAnswerError, OptionsError

if TYPE_CHECKING:
    from tradewind.chain.checkpoints import Checkpoint
    from tradewind.chain.report import ChainReport
    from tradewind.chain.signed_heads import SignedHead
    from tradewind.chain.verifier import ChainedMessage
    from tradewind.client.jetstream import JetStream


class Chains:
    """The hash chains of the streams of an account. Made by `js.chains`.

    >>> report = await js.chains.verify("ORDERS")
    >>> print(report.is_intact, report.proved_sequence)
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self._api = js.api

    async def info(self, stream: str) -> ChainInfo:
        """The head of a chain and its last checkpoint."""
        return await self._api.call(ChainInfo, "stream_chain_info", stream)

    async def checkpoint(self, stream: str) -> Checkpoint:
        """Have the server sign the head now; keep the result where the server cannot change it."""
        answer = await self._api.call(ChainCheckpoint, "stream_chain_checkpoint", stream)
        if answer.checkpoint is None:
            raise BadAnswerError(f"the chain of stream {stream!r} has no entries to sign")
        return answer.checkpoint

    async def inclusion_proof(
        self, stream: str, *, seq: int = 0, index: int | None = None, size: int = 0
    ) -> ChainProof:
        """A proof that the entry of a message, or the entry at an index, is in the tree of `size`
        entries (0: of the last checkpoint). The client has checked the proof.
        """
        if (seq == 0) == (index is None):
            raise OptionsError("inclusion_proof: specify seq or index")
        request = ChainProofRequest(seq=seq, index=index, size=size)
        proof = await self._api.call(ChainProof, "stream_chain_proof", stream, body=request)
        digest = digest_of((await self.info(stream)).algorithm)
        link, root = hash_of(proof.link, "link"), hash_of(proof.root, "root")
        path = [hash_of(node, "path") for node in proof.path]
        if proof.index is None or not merkle.is_included(
            digest, proof.index, proof.size, link, path, root
        ):
            raise BadAnswerError(f"the server's proof for stream {stream!r} proves nothing")
        return proof

    async def message(self, stream: str, seq: int) -> ChainedMessage | None:
        """A message byte for byte as it is stored; None if there is none."""
        from tradewind.client.streams.chain_verifying import get_exact

        return await get_exact(self._js, stream, seq)

    async def prove(self, stream: str, seq: int) -> MessageProof:
        """A document that proves one message by the last checkpoint, which is made if needed.

        `tradewind.chain.check_proof` checks it, without a server.
        """
        message = await self.message(stream, seq)
        if message is None:
            raise OptionsError(f"stream {stream!r} has no message {seq}")
        head = await self.checkpoint(stream)
        proof = await self.inclusion_proof(stream, seq=seq, size=head.size)
        index = proof.index or 0
        before = (await self.entries(stream, index, 1)).before
        path = [hash_of(node, "path") for node in proof.path]
        return make_proof(message, index, hash_of(before, "before"), path, head)

    async def consistency_proof(self, stream: str, first_size: int, size: int = 0) -> ChainProof:
        """A proof that the tree of `size` entries (0: of the last checkpoint) begins with that of
        `first_size`; `merkle.is_consistent` checks it against the roots of two checkpoints.
        """
        if first_size < 1:
            raise OptionsError(f"consistency_proof: first_size is 1 or more, not {first_size}")
        request = ChainProofRequest(first_size=first_size, size=size)
        return await self._api.call(ChainProof, "stream_chain_proof", stream, body=request)

    async def entries(self, stream: str, index: int = 0, count: int = ENTRIES_MAX) -> ChainEntries:
        """A page of entries, at most `count`, for `tradewind.chain.chain_entries.read_records`."""
        if not 1 <= count <= ENTRIES_MAX:
            raise OptionsError(f"entries: count is from 1 to {ENTRIES_MAX}, not {count}")
        request = ChainEntriesRequest(index=index, count=count)
        return await self._api.call(ChainEntries, "stream_chain_entries", stream, body=request)

    async def verify(
        self,
        stream: str,
        *,
        checkpoints: Sequence[Checkpoint | SignedHead] = (),
        keys: Sequence[str] = (),
        origin: JetStream | None = None,
        origin_stream: str = "",
        last: int = 0,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> ChainReport:
        """Read a stream and hold every message against its chain.

        `checkpoints` that were stored elsewhere must fit; with `keys` only these public keys count.
        With `origin`, the messages are held against the chain of that server's stream, as for a
        mirror. `last`: only this many of the last entries. `on_progress` gets how many entries are
        done, and of how many.
        """
        from tradewind.client.streams.chain_verifying import verify_stream

        return await verify_stream(
            self._js,
            stream,
            checkpoints=checkpoints,
            keys=keys,
            origin=origin,
            origin_stream=origin_stream,
            last=last,
            on_progress=on_progress,
        )
