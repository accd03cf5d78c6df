"""The mappings of an account: chosen by weight, remembered by subject, bounded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.route.mapping import MappingError, compile_mapping
from tradewind.route.remapping import (
    SUBJECTS_REMEMBERED_MAX,
    AccountMappings,
    Destination,
    MappingRule,
    check_rule,
)


def rule(source: str, *destinations: tuple[str, int] | tuple[str, int, str]) -> MappingRule:
    return MappingRule(source, tuple(Destination(*one) for one in destinations))


def test_random_tokens_are_chosen_anew_for_every_message() -> None:
    numbers = iter(range(10))
    mappings = AccountMappings(
        [rule("a", ("b.{{random(10)}}", 100))],
        random_below=lambda below: next(numbers) if below == 10 else 0,
    )
    assert [mappings.map(b"a") for _ in range(4)] == [b"b.0", b"b.1", b"b.2", b"b.3"]


def test_what_is_remembered_is_bounded_and_stays_right() -> None:
    mappings = AccountMappings([rule("a.*", ("b.$1", 100))], random_below=lambda _below: 0)
    for number in range(3 * SUBJECTS_REMEMBERED_MAX):
        assert mappings.map(b"a.%d" % number) == b"b.%d" % number
        assert mappings.map(b"c.%d" % number) == b"c.%d" % number
    assert len(mappings._seen) <= SUBJECTS_REMEMBERED_MAX


def test_bytes_that_are_no_text_are_mapped() -> None:
    mappings = AccountMappings([rule("a.*", ("b.$1", 100))], random_below=lambda _below: 0)
    assert mappings.map(b"a.\xff\xfe") == b"b.\xff\xfe"


SUBJECTS = [b"a", b"b", b"a.x", b"a.y", b"b.x", b"a.x.y", b"c.x.y"]
SOURCES = st.sampled_from(["a", "b", "a.*", "*.x", "a.>", "*.*"])
WEIGHTS = st.lists(st.integers(0, 40), min_size=1, max_size=3).filter(lambda all_: sum(all_) <= 100)
RULES = st.lists(st.tuples(SOURCES, WEIGHTS), max_size=4)


def naive(rules: list[MappingRule], subject: bytes, number: int) -> bytes:
    """The same by the sentences of the documentation, one message at a time."""
    for one in rules:
        whole = compile_mapping(one.source, "", random_below=lambda _below: 0)
        if whole.apply_bytes(subject) is None:
            continue
        places = sorted(one.destinations, key=lambda place: place.weight)
        rest = 100 - sum(place.weight for place in places)
        shares = [(place.weight, place.subject) for place in places]
        shares = sorted([*shares, *([(rest, "")] if rest else [])], key=lambda share: share[0])
        for weight, destination in shares:
            if number < weight:
                mapping = compile_mapping(one.source, destination, random_below=lambda _below: 0)
                return mapping.apply_bytes(subject) or b""
            number -= weight
        return b""
    return subject


@pytest.mark.slow
@given(RULES, st.lists(st.tuples(st.sampled_from(SUBJECTS), st.integers(0, 99)), max_size=30))
def test_mapping_is_that_of_the_rules(
    drawn: list[tuple[str, list[int]]], messages: list[tuple[bytes, int]]
) -> None:
    rules = []
    for source, weights in drawn:
        end = ".>" if source.endswith(">") else ""
        places = [(f"to.{place}{end}", weight) for place, weight in enumerate(weights)]
        rules.append(rule(source, *places))
    chance: list[int] = []
    mappings = AccountMappings(rules, random_below=lambda _below: chance[-1])
    for subject, number in messages:
        chance.append(number)
        assert mappings.map(subject) == naive(rules, subject, number)


def test_shares_come_out_as_the_weights_say() -> None:
    chance = random.Random(7)
    mappings = AccountMappings(
        [rule("a", ("b", 20), ("c", 30))], random_below=lambda below: chance.randrange(below)
    )
    found = [mappings.map(b"a") for _ in range(10_000)]
    for subject, share in ((b"b", 20), (b"c", 30), (b"a", 50)):
        assert abs(found.count(subject) / 100 - share) < 3


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (rule("a", ("b", 60), ("c", 60)), "total weight needs to be <= 100"),
        (rule("a", ("b", 10), ("b", 10)), 'duplicate entry for "b"'),
        (rule("a", ("b", 60, "X"), ("c", 60, "X")), "total weight needs to be <= 100"),
        (rule("a", ("b.$1", 10, "X")), "invalid mapping destination: wildcard index out of range"),
    ],
)
def test_wrong_rule_is_refused(wrong: MappingRule, text: str) -> None:
    with pytest.raises(MappingError, match=text):
        check_rule(wrong)


def test_same_destination_for_servers_of_several_clusters_is_fine() -> None:
    check_rule(rule("a", ("b", 60), ("b", 60, "X"), ("b", 60, "Y")))
