"""Names, routing keys and bindings of AMQP as subjects, against a naive matcher."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.client.errors import OptionsError
from tradewind.contrib.kombu.queue_subjects import (
    BINDINGS_MAX,
    DIRECT,
    FANOUT,
    TOPIC,
    WORDS_MAX,
    QueueBinding,
    consumer_name,
    disjoint,
    exchange_subject,
    matches,
    queue_filters,
    queue_subject,
    to_token,
)
from tradewind.contrib.kombu.task_queues import QueueRecord
from tradewind.subjects import collide, is_subset, is_valid_literal, is_valid_subject

WORDS = st.sampled_from(["a", "b", "c", ""])
KEYS = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join)
BINDINGS = st.one_of(
    st.builds(QueueBinding, st.just("e"), st.just(DIRECT), KEYS),
    st.builds(QueueBinding, st.just("e"), st.just(TOPIC), PATTERNS),
    st.builds(QueueBinding, st.just("f"), st.just(FANOUT), KEYS),
)


def naive_topic(pattern: list[str], words: list[str]) -> bool:
    """AMQP's definition, word by word."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(naive_topic(pattern[1:], words[count:]) for count in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and naive_topic(pattern[1:], words[1:])


@given(st.text(max_size=20), st.text(max_size=20))
def test_names_become_valid_tokens_and_stay_different(first: str, second: str) -> None:
    token = to_token(first)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token)
    assert is_valid_literal(token)
    assert (token == to_token(second)) == (first == second)


@given(PATTERNS, KEYS)
def test_topics_match_as_amqp_defines(pattern: str, key: str) -> None:
    binding = QueueBinding("e", TOPIC, pattern)
    assert matches([binding], "e", key) == naive_topic(pattern.split("."), key.split("."))
    assert not matches([binding], "other", key)


@given(st.lists(BINDINGS, max_size=5), st.sampled_from(["e", "f"]), KEYS, st.integers(0, 9))
def test_filters_let_everything_through_that_a_queue_wants(
    bindings: list[QueueBinding], exchange: str, key: str, priority: int
) -> None:
    record = QueueRecord("q", (0, 3, 6, 9))
    passing = []
    for step in record.steps:
        filters = queue_filters("S", "q", bindings, record.priorities(step, 9))
        assert all(is_valid_subject(each) for each in filters)
        assert not any(collide(one, other) for one, other in combinations(filters, 2))
        subject = exchange_subject("S", exchange, key, priority)
        passing += [each for each in filters if is_subset(subject, each)]
        assert any(is_subset(queue_subject("S", "q", n), each) for each in filters
                   for n in record.priorities(step, 9))  # fmt: skip
    if matches(bindings, exchange, key):
        assert len(passing) == 1  # by the consumer of one step alone


@given(st.lists(st.sampled_from(["a", "*", ">", "a.b", "a.*", "*.b", "a.>", "*.*.c", "a.b.>"])))
def test_disjoint_patterns_cover_what_they_stand_for(patterns: list[str]) -> None:
    made = disjoint(patterns)
    assert not any(collide(one, other) for one, other in combinations(made, 2))
    for pattern in patterns:
        assert any(is_subset(pattern, each) for each in made)


def test_patterns_that_do_not_overlap_stay_as_they_are() -> None:
    assert disjoint(["a.b", "a.c", "b.*"]) == ["a.b", "a.c", "b.*"]
    assert disjoint(["a.*", "*.b"]) == ["*.*"]
    assert disjoint(["a.>", "*.b"]) == ["*.>"]


def test_every_step_of_priority_has_a_consumer_of_its_own() -> None:
    record = QueueRecord("mail.out", (0, 3, 6, 9))
    assert record.consumers() == ["mail=2Eout=p9", "mail=2Eout=p6", "mail=2Eout=p3", "mail=2Eout"]
    taken = [number for step in record.steps for number in record.priorities(step, 9)]
    assert taken == list(range(10))
    assert list(QueueRecord("q").priorities(0, 9)) == ["*"]
    # No name of another queue becomes the same.
    assert consumer_name("mail.out=p9", (0,), 0) == "mail=2Eout=3Dp9"


def test_what_is_too_long_or_too_much_is_refused_by_name() -> None:
    with pytest.raises(OptionsError, match="queue or exchange 'xxx"):
        queue_subject("S", "x" * 300, 0)
    with pytest.raises(OptionsError, match=f"at most {WORDS_MAX} words, not 65"):
        exchange_subject("S", "e", "." * 64, 0)
    many = [QueueBinding("e", DIRECT, str(number)) for number in range(BINDINGS_MAX + 1)]
    with pytest.raises(OptionsError, match="queue 'q': at most 256 bindings, not 257"):
        queue_filters("S", "q", many, ["*"])
