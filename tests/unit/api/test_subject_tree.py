"""Which subjects collide and cover each other, compared with a look at all pairs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.errors import ApiError
from tradewind.api.subject_tree import SubjectTree, has_subset, numbered
from tradewind.subjects import collide, is_subset

TOKENS = st.sampled_from(["a", "b", "*"])
SUBJECTS = st.builds(
    lambda tokens, full: ".".join([*tokens, ">"] if full else tokens),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.booleans(),
)
# A '>' in the middle is not valid, but is compared before that is said.
ANY_SUBJECTS = st.one_of(
    SUBJECTS, st.lists(st.sampled_from(["a", "*", ">", ""]), max_size=4).map(".".join)
)
OWNED = st.tuples(st.sampled_from(["x", "y", "z"]), SUBJECTS)


@pytest.mark.slow
@given(st.lists(OWNED), st.lists(st.integers(0, 20)), OWNED)
def test_others_are_found_as_by_comparing_all_pairs(
    added: list[tuple[str, str]], removed: list[int], asked: tuple[str, str]
) -> None:
    tree: SubjectTree[str] = SubjectTree()
    model = set()
    for owner, subject in added:
        tree.add(owner, [subject])
        model.add((owner, subject))
    for index in removed:
        if index < len(added):
            tree.remove(added[index][0], [added[index][1]])
            model.discard(added[index])
    owner, subject = asked
    expected = any(other != owner and collide(subject, its) for other, its in model)
    assert tree.others(owner, subject, tree.effort([subject])) == expected


@pytest.mark.slow
@given(st.lists(ANY_SUBJECTS), ANY_SUBJECTS)
def test_collisions_and_covers_are_those_of_all_pairs(subjects: list[str], asked: str) -> None:
    tree = numbered(subjects)
    assert set(tree.colliding(asked, tree.effort([asked]))) == {
        index for index, subject in enumerate(subjects) if collide(asked, subject)
    }
    assert set(tree.covering(asked, tree.effort([asked]))) == {
        index for index, subject in enumerate(subjects) if is_subset(asked, subject)
    }


@pytest.mark.slow
@given(st.lists(SUBJECTS, max_size=5))
def test_a_subset_is_found_among_many(subjects: list[str]) -> None:
    pairs = [(one, other) for one in range(len(subjects)) for other in range(len(subjects))]
    assert has_subset(subjects) == any(
        one != other and is_subset(subjects[one], subjects[other]) for one, other in pairs
    )


def test_nothing_is_left_when_all_is_removed() -> None:
    tree: SubjectTree[str] = SubjectTree()
    tree.add("x", ["a.b.c", "a.*"])
    tree.remove("x", ["a.b.c", "a.*", "never.there"])
    assert not tree.others("y", ">", tree.effort([">"]))


@pytest.mark.slow
def test_thousands_of_subjects_are_compared_without_looking_at_all_pairs() -> None:
    subjects = [f"many.{number}.*" for number in range(20_000)]
    tree = numbered(subjects)
    effort = tree.effort(subjects)
    looked_at = sum(1 for subject in subjects for _ in tree.colliding(subject, effort))
    assert looked_at == len(subjects)


def test_subject_with_more_tokens_than_calls_can_be_nested_is_compared() -> None:
    subject = ".".join("a" * 100_000)
    tree = numbered([subject, "b"])
    effort = tree.effort([subject])
    assert list(tree.colliding(subject, effort)) == [0]
    assert list(tree.covering(subject, effort)) == [0]


@pytest.mark.slow
def test_patterns_of_which_each_could_match_most_others_are_refused() -> None:
    """They differ only at the end, so a lookup follows all beginnings: a million and a half."""
    beginnings = product("a*", repeat=12)
    subjects = [".".join((*tokens, str(number))) for number, tokens in enumerate(beginnings)]
    with pytest.raises(ApiError, match="too many of the subjects could overlap"):
        has_subset(subjects)


@pytest.mark.slow
def test_wildcards_beside_thousands_of_literals_are_compared() -> None:
    assert not has_subset([f"a{n}.b" for n in range(5000)] + [f"*.c{n}" for n in range(30)])
    subjects = [f"a{n}.b" for n in range(5000)] + [f"*.c{n}" for n in range(30)]
    tree = numbered(subjects)
    effort = tree.effort(subjects)
    for number, subject in enumerate(subjects):
        assert not tree.others(number, subject, effort)


def test_size_is_that_of_the_tokens_that_are_left() -> None:
    tree: SubjectTree[str] = SubjectTree()
    tree.add("x", ["a.b", "a.c", "*"])
    assert tree.size == 5
    tree.add("y", ["a.b"])
    tree.remove("x", ["a.b", "a.c", "no.such"])
    assert tree.size == 4
    tree.remove("y", ["a.b"])
    tree.remove("x", ["*"])
    assert tree.size == 1
