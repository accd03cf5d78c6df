"""Questions about patterns, against the literal subjects that they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from subject_model import all_patterns, all_subjects, matches

from tradewind import subjects
from tradewind.route import sublist

# A pattern of up to three tokens is told apart from any other by subjects of up to four.
SUBJECTS = all_subjects("ab", 4)
PATTERNS = all_patterns("ab", 3)
MATCHED = {
    pattern: frozenset(subject for subject in SUBJECTS if matches(pattern, subject))
    for pattern in PATTERNS
}

any_text = st.text("ab.*> \t\r\n\f\x00", max_size=8)


def test_matching_is_that_of_the_model_for_all_small_patterns() -> None:
    for pattern, matched in MATCHED.items():
        for subject in SUBJECTS:
            result = sublist.subject_match(subject.encode(), pattern.encode())
            assert result == (subject in matched), (pattern, subject)


def test_subset_means_that_every_matched_subject_is_matched_by_the_other() -> None:
    for narrow, narrow_subjects in MATCHED.items():
        for wide, wide_subjects in MATCHED.items():
            assert subjects.is_subset(narrow, wide) == (narrow_subjects <= wide_subjects), (
                narrow,
                wide,
            )


def test_collision_means_that_some_subject_is_matched_by_both() -> None:
    for first, first_subjects in MATCHED.items():
        for second, second_subjects in MATCHED.items():
            expected = not first_subjects.isdisjoint(second_subjects)
            assert subjects.collide(first, second) == expected, (first, second)


def test_literal_means_that_it_matches_itself_only() -> None:
    for pattern, matched in MATCHED.items():
        assert subjects.is_literal(pattern) == (matched == {pattern})


@given(any_text)
def test_validity_is_the_same_in_the_control_plane_and_in_the_data_plane(text: str) -> None:
    parts = text.split(".")
    expected = (
        all(parts)
        and ">" not in parts[:-1]
        and not any(blank in text for blank in (" ", "\t", "\r", "\n", "\f"))
    )
    assert subjects.is_valid_subject(text) == expected
    assert sublist.is_valid_subject(text.encode()) == expected
    literal = expected and not {"*", ">"} & set(parts)
    assert sublist.is_valid_subject(text.encode(), literal=True) == literal
