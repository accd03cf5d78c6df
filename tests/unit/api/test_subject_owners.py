"""Who has which subjects, compared with a look at all pairs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.subject_owners import SubjectOwners
from tradewind.subjects import collide

TOKENS = st.sampled_from(["a", "b", "*"])
SUBJECTS = st.builds(
    lambda tokens, full: ".".join([*tokens, ">"] if full else tokens),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.booleans(),
)
OWNED = st.tuples(st.sampled_from(["x", "y", "z"]), SUBJECTS)


@given(st.lists(OWNED), st.lists(st.integers(0, 20)), OWNED)
def test_others_are_found_as_by_comparing_all_pairs(
    added: list[tuple[str, str]], removed: list[int], asked: tuple[str, str]
) -> None:
    owners, model = SubjectOwners(), set()
    for owner, subject in added:
        owners.add(owner, [subject])
        model.add((owner, subject))
    for index in removed:
        if index < len(added):
            owners.remove(added[index][0], [added[index][1]])
            model.discard(added[index])
    owner, subject = asked
    expected = any(other != owner and collide(subject, its) for other, its in model)
    assert owners.others(owner, subject) == expected


def test_nothing_is_left_when_all_is_removed() -> None:
    owners = SubjectOwners()
    owners.add("x", ["a.b.c", "a.*"])
    owners.remove("x", ["a.b.c", "a.*", "never.there"])
    assert not owners.others("y", ">")
