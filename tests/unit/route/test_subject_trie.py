"""What subscriptions of very many tokens cost: nodes for where they part, not for their tokens."""

from __future__ import annotations

import time
from itertools import product

from tradewind.route.mapping import RandomBelow
from tradewind.route.remapping import AccountMappings, Destination, MappingRule
from tradewind.route.subject_trie import steps
from tradewind.route.sublist import Sublist

PARTING = 8


def parting_patterns(tokens: int) -> list[bytes]:
    """Patterns that part at each of their first tokens and then go on, all for the same subject."""
    rest = [b"a", b"*"] * ((tokens - PARTING) // 2)
    return [b".".join([*one, *rest]) for one in product((b"a", b"*"), repeat=PARTING)]


def steps_of(tree: Sublist, subject: bytes) -> int:
    before = steps()
    tree.find(subject)
    return steps() - before


def test_tokens_at_which_no_patterns_part_need_no_nodes() -> None:
    tree = Sublist(1)
    handle = tree.add(b"a.b.*.d.e.f")
    assert tree.node_count() == 1
    other = tree.add(b"a.b.*.x")
    assert tree.node_count() == 3
    assert tree.find(b"a.b.c.x") == ([other], {})
    tree.discard(other)
    assert tree.node_count() == 1
    assert tree.find(b"a.b.c.d.e.f") == ([handle], {})
    assert tree.find(b"a.b.c.d.e") == ([], {})
    tree.discard(handle)
    assert tree.node_count() == 0


def test_two_thousand_tokens_need_hardly_more_nodes_than_two_hundred() -> None:
    tree = Sublist(1)
    handles = [tree.add(pattern) for pattern in parting_patterns(2000)]
    length = 2 * 2000
    assert tree.node_count() <= 2 * len(handles) + len(handles) * length // 128
    assert sorted(tree.find(b".".join([b"a"] * 2000))[0]) == sorted(handles)
    assert tree.find(b".".join([b"a"] * 1998 + [b"b", b"a"])) == ([], {})
    for handle in handles:
        tree.discard(handle)
    assert tree.node_count() == 0


def test_the_steps_of_a_lookup_grow_with_the_bytes_of_the_patterns_it_passes() -> None:
    counts = []
    for tokens in (500, 1000):
        tree = Sublist(1)
        for pattern in parting_patterns(tokens):
            tree.keep(pattern)
        subject = b".".join([b"a"] * (tokens - 2) + [b"b", b"a"])
        counts.append(steps_of(tree, subject))
        # A node stands for many tokens: far fewer steps than tokens passed.
        assert counts[-1] < 2**PARTING * tokens // 4
    assert counts[0] < counts[1] < 3 * counts[0]


def test_a_literal_lookup_takes_a_step_for_each_place_where_patterns_part() -> None:
    tree = Sublist(1)
    for number in range(1000):
        tree.keep(b"load.%d.*" % number)
    assert steps_of(tree, b"load.77.x") <= 3


def test_freeing_a_table_takes_about_as_long_as_filling_it() -> None:
    """Looking for the next subject from the start of the table each time takes ninety times as
    long.
    """
    tree = Sublist(1)
    times = [time.thread_time()]
    for number in range(40_000):
        tree.keep(b"%d" % number)
    times.append(time.thread_time())
    del tree
    times.append(time.thread_time())
    assert times[2] - times[1] < 10 * (times[1] - times[0])


def test_a_subject_that_is_mapped_for_the_first_time_counts_the_rules() -> None:
    random_below: RandomBelow = lambda _bound: 0  # noqa: E731
    rules = [MappingRule(f"from.{n}", (Destination(f"to.{n}"),)) for n in range(100)]
    mappings = AccountMappings(rules, random_below=random_below)
    before = steps()
    assert mappings.map(b"from.99") == b"to.99"
    first = steps() - before
    assert mappings.map(b"from.99") == b"to.99"
    assert first >= 100
    assert steps() - before == first
