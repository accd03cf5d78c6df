"""Answers of a server about a chain, made by the reference implementation: true ones, and lies."""

from __future__ import annotations

from typing import Any

import pytest

from chain_kit import ReferenceChain, Stored, encode_records, root_of
from tradewind.api import chain as types
from tradewind.chain import checkpoints, merkle
from tradewind.chain.chain_entries import MESSAGE
from tradewind.client.jetstream import JetStream
from tradewind.client.streams.api_requests import ApiRequests
from tradewind.client.streams.chain_verifying import get_exact


class ChainAnswers:
    """Takes the place of the server for all requests about chains; `page` entries at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, page: int = 7) -> None:
        self.chains: dict[str, ReferenceChain] = {}
        self.page = page
        self.asked: list[str] = []
        plain = ApiRequests.call
        answers = self

        async def call(
            api: ApiRequests, answer: Any, endpoint: str, stream: str = "", *rest: Any, **more: Any
        ) -> Any:
            if not endpoint.startswith("stream_chain_") or stream not in answers.chains:
                return await plain(api, answer, endpoint, stream, *rest, **more)
            answers.asked.append(endpoint)
            name = endpoint.removeprefix("stream_chain_")
            return getattr(answers, name)(answers.chains[stream], more.get("body"))

        monkeypatch.setattr(ApiRequests, "call", call)

    def info(self, chain: ReferenceChain, _: object) -> types.ChainInfo:
        head = checkpoints.decode(chain.lines[-1]) if chain.lines else None
        return types.ChainInfo(
            algorithm=chain.algorithm,
            size=len(chain.records),
            link=chain.link.hex(),
            last_seq=chain.last_sequence,
            checkpoint=head,
            key=chain.key.public,
        )

    def checkpoint(self, chain: ReferenceChain, _: object) -> types.ChainCheckpoint:
        return types.ChainCheckpoint(checkpoint=chain.checkpoint())

    def entries(
        self, chain: ReferenceChain, request: types.ChainEntriesRequest
    ) -> types.ChainEntries:
        found = chain.records[request.index : request.index + min(request.count, self.page)]
        before = chain.records[request.index - 1].link if request.index else chain.before
        return types.ChainEntries(
            first_index=request.index,
            before=before.hex(),
            records=encode_records(found),
            size=len(chain.records),
        )

    def proof(self, chain: ReferenceChain, request: types.ChainProofRequest) -> types.ChainProof:
        links = [record.link for record in chain.records[: request.size]]
        index = request.index
        if request.seq:
            index = next(
                n
                for n, record in enumerate(chain.records)
                if (record.kind, record.sequence) == (MESSAGE, request.seq)
            )
        ranges = (
            merkle.consistency_ranges(request.first_size, request.size)
            if request.first_size
            else merkle.inclusion_ranges(index or 0, request.size)
        )
        return types.ChainProof(
            size=request.size,
            root=root_of(chain.digest, links).hex(),
            path=[root_of(chain.digest, links[a:b]).hex() for a, b in ranges],
            index=index,
            link="" if index is None else links[index].hex(),
            first_size=request.first_size,
        )


async def chain_of_stream(js: JetStream, stream: str) -> ReferenceChain:
    """The chain that a server would have made of what is in a stream, with the removals last."""
    info = await js.manager.streams.info(stream)
    chain = ReferenceChain(stream=stream, created=info.created or "")
    gaps = []
    for sequence in range(1, info.state.last_seq + 1):
        found = await get_exact(js, stream, sequence)
        chain.add(Stored(sequence, 1, b"gone", b"", b"") if found is None else Stored(*found))
        if found is None:
            gaps.append(sequence)
        if sequence % 10 == 0:
            chain.checkpoint()
    for gap in gaps:
        chain.remove((gap, gap))
    chain.checkpoint()
    return chain
