"""A chain verified in parts says the same as one verified as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_kit import KEY, ReferenceChain, Stored, chain_of, histories, root_of, stored
from tradewind.chain import checkpoints
from tradewind.chain.chain_entries import MESSAGE, ChainError
from tradewind.chain.merkle import Frontier
from tradewind.chain.report import ChainReport
from tradewind.chain.segments import SegmentFound, SegmentJoin, verify_segment
from tradewind.chain.signed_heads import signed_heads_in
from tradewind.chain.verifier import ChainedMessage


def parts_of(
    chain: ReferenceChain, messages: dict[int, Stored], size: int
) -> Iterator[SegmentFound]:
    """Every part by itself, and sent to another process."""
    sizes = [checkpoints.decode(line).size for line in chain.lines]
    first_seq = 1
    for start in range(0, len(chain.records), size):
        records = chain.records[start : start + size]
        last_seq = max([first_seq - 1, *(one.sequence for one in records if one.kind == MESSAGE)])
        mine = sorted(number for number in messages if first_seq <= number <= last_seq)
        found = verify_segment(
            chain.stream,
            chain.algorithm,
            start,
            chain.records[start - 1].link if start else chain.before,
            records,
            (ChainedMessage(*vars(messages[number]).values()) for number in mine),
            sizes,
        )
        yield msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=SegmentFound)
        first_seq = last_seq + 1


def check(chain: ReferenceChain, messages: dict[int, Stored], size: int = 4) -> ChainReport:
    signed_heads = signed_heads_in(iter(enumerate(chain.lines)), "checkpoints")
    join = SegmentJoin(chain.stream, chain.created, chain.algorithm, chain.before, signed_heads)
    for part in parts_of(chain, messages, size):
        join.add(part)
    return join.finish()


@settings(max_examples=50)
@given(histories(), st.sampled_from([1, 2, 4, 64]))
def test_any_untouched_history_is_intact_in_parts(chain: ReferenceChain, size: int) -> None:
    report = check(chain, chain.live, size)
    assert report.faults == []
    assert report.size == len(chain.records)
    assert report.messages == len(chain.live)
    assert report.checkpoints == len(chain.lines)
    signed = [checkpoints.decode(line) for line in chain.lines]
    assert report.proved_sequence == (signed[-1].last_seq if signed else 0)
    assert report.signers == ([KEY.public] if signed else [])


@settings(max_examples=50)
@given(histories(), st.sampled_from([1, 4, 64]), st.data())
def test_what_was_done_to_messages_is_named_in_parts(
    chain: ReferenceChain, size: int, data: st.DataObject
) -> None:
    if not chain.live:
        return
    sequence = data.draw(st.sampled_from(sorted(chain.live)))
    changed = {**chain.live, sequence: replace(chain.live[sequence], payload=b"forged")}
    report = check(chain, changed, size)
    assert [(fault.kind, fault.sequence) for fault in report.faults] == [("changed", sequence)]
    assert report.proved_sequence < sequence
    missing = {key: value for key, value in chain.live.items() if key != sequence}
    report = check(chain, missing, size)
    assert [(fault.kind, fault.sequence) for fault in report.faults] == [("removed", sequence)]
    if chain.gone:
        back = min(chain.gone)
        report = check(chain, {**chain.live, back: chain.gone[back]}, size)
        assert [(fault.kind, fault.sequence) for fault in report.faults] == [("returned", back)]


def test_a_rewritten_chain_does_not_fit_in_parts_either() -> None:
    chain = chain_of(20, every=5)
    lines = chain.lines
    anew = ReferenceChain()
    for number in range(1, 21):
        anew.add(stored(number, **({"payload": b"forged"} if number == 12 else {})))
    anew.lines = lines
    report = check(anew, anew.live)
    assert [fault.kind for fault in report.faults] == ["checkpoint", "checkpoint"]
    assert (
        "checkpoint 3 (checkpoints, byte 2) (of 15 entries) does not match" in report.faults[0].text
    )
    assert report.proved_sequence == 10
    anew.records = anew.records[:18]
    report = check(anew, {number: anew.live[number] for number in range(1, 19)})
    assert "its end was cut off" in report.faults[-1].text


def test_an_inserted_message_is_named_in_parts() -> None:
    chain = ReferenceChain()
    for number in (1, 2, 5, 6):
        chain.add(stored(number))
    chain.checkpoint()
    report = check(chain, {**chain.live, 3: stored(3)}, 2)
    assert [(fault.kind, fault.sequence) for fault in report.faults] == [("inserted", 3)]


@settings(max_examples=40)
@given(st.integers(0, 70), st.integers(0, 4))
def test_a_tree_of_subtrees_is_the_tree(count: int, level: int) -> None:
    chain = ReferenceChain()
    links = [chain.digest(b"%d" % number) for number in range(count)]
    tree = Frontier(chain.digest)
    step = 1 << level
    for start in range(0, count, step):
        part = Frontier(chain.digest)
        for link in links[start : start + step]:
            part.append(link)
        for height, node in part.peaks():
            tree.append(node, height)
    assert tree.root() == root_of(chain.digest, links)
    assert tree.copy().root() == tree.root()


def test_a_subtree_in_the_wrong_place_is_refused() -> None:
    chain = ReferenceChain()
    tree = Frontier(chain.digest)
    tree.append(bytes(32))
    with pytest.raises(ChainError, match="a subtree of 2 leaves does not begin at 1"):
        tree.append(bytes(32), 1)
