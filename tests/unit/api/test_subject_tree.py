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
    assert tree.others(owner, [subject]) == expected


@pytest.mark.slow
@given(st.lists(ANY_SUBJECTS), ANY_SUBJECTS)
def test_collisions_and_covers_are_those_of_all_pairs(subjects: list[str], asked: str) -> None:
    tree = numbered(subjects)
    assert set(tree.colliding(asked)) == {
        index for index, subject in enumerate(subjects) if collide(asked, subject)
    }
    assert set(tree.covering(asked)) == {
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
    assert not tree.others("y", [">"])


@pytest.mark.slow
def test_thousands_of_subjects_are_compared_without_looking_at_all_pairs() -> None:
    subjects = [f"many.{number}.*" for number in range(20_000)]
    tree = numbered(subjects)
    looked_at = sum(1 for subject in subjects for _ in tree.colliding(subject))
    assert looked_at == len(subjects)


def parting_subjects(wildcards: int) -> list[str]:
    """None collides with another, but all have to be followed to their last tokens to see it."""
    every = enumerate(product("a*", repeat=wildcards))
    return [".".join([*tokens, f"x{number}"]) for number, tokens in every]


@pytest.mark.parametrize("call", ["colliding", "covering"])
def test_subjects_of_very_many_tokens_need_no_deep_stack(call: str) -> None:
    subject = ".".join(["*"] * 50_000)
    assert list(getattr(numbered([subject]), call)(subject)) == [0]


def test_comparing_few_subjects_with_many_wildcards_is_allowed() -> None:
    subjects = parting_subjects(5)
    assert not has_subset(subjects)
    assert not any(numbered(subjects[:-1]).others(-1, [subject + "y"]) for subject in subjects)


def test_what_a_comparison_of_wildcards_may_cost_is_in_proportion_to_the_request() -> None:
    tree: SubjectTree[str] = SubjectTree()
    subjects = parting_subjects(11)
    tree.add("x", subjects)
    with pytest.raises(ApiError, match="too many wildcards"):
        tree.others("y", [subject + "y" for subject in subjects])


def test_one_wide_subject_may_visit_all_of_a_large_tree() -> None:
    tree: SubjectTree[str] = SubjectTree()
    tree.add("x", [f"own.{number}" for number in range(30_000)])
    assert not tree.others("x", ["own.*"])
    assert tree.others("y", ["own.*"])
