"""The proof of one message, in a document that stands for itself."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_kit import ReferenceChain, chain_of, root_of, stored
from tradewind.chain import merkle, proofs
from tradewind.chain.chain_entries import ChainError
from tradewind.chain.verifier import ChainedMessage


def proof_of(
    chain: ReferenceChain, index: int, size: int, **changes: object
) -> proofs.MessageProof:
    links = [record.link for record in chain.records[:size]]
    ranges = merkle.inclusion_ranges(index, size)
    path = [root_of(chain.digest, links[first:end]) for first, end in ranges]
    message = stored(chain.records[index].sequence, **changes)
    before = chain.records[index - 1].link if index else chain.before
    head = chain.checkpoint()
    chained = ChainedMessage(*vars(message).values())
    return proofs.make_proof(chained, index, before, path, head)


@settings(max_examples=40)
@given(st.integers(1, 40), st.data())
def test_every_message_has_a_proof_that_comes_back_as_json(count: int, data: st.DataObject) -> None:
    chain = chain_of(count, every=0)
    index = data.draw(st.integers(0, count - 1))
    proof = proof_of(chain, index, count)
    again = proofs.decode_proof(msgspec.json.format(msgspec.json.encode(proof), indent=2))
    assert again == proof
    proofs.check_proof(again, [chain.key.public])


def test_another_message_cannot_be_proved() -> None:
    chain = chain_of(10, every=0)
    with pytest.raises(ChainError, match="not the one that was chained as entry 3"):
        proof_of(chain, 3, 10, payload=b"forged")


def test_a_subject_that_no_document_can_hold_is_refused() -> None:
    with pytest.raises(ChainError, match="the subject is not UTF-8"):
        proof_of(chain_of(10, every=0), 3, 10, subject=b"orders.\xff")


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"sequence":1}'])
def test_what_is_no_proof_is_refused(data: bytes) -> None:
    with pytest.raises(ChainError, match="not a proof of a message"):
        proofs.decode_proof(data)
