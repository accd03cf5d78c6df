"""Subject mappings. `cases/mappings.jsonl` is what nats-server 2.15.1 makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import sweep

from js_cases import MappingCase, mapping_cases
from tradewind.route.mapping import (
    MappingError,
    SubjectMapping,
    check_mapping,
    compile_mapping,
)

APPLIED = [case for case in mapping_cases() if not case.error]
REFUSED = [case for case in mapping_cases() if case.error]


def mapping(source: str, destination: str) -> SubjectMapping:
    return compile_mapping(source, destination, random_below=lambda _below: 0)


@sweep("case", APPLIED, ids=str)
def test_a_subject_becomes_what_the_official_server_makes_of_it(case: MappingCase) -> None:
    check_mapping(case.source, case.destination)
    assert mapping(case.source, case.destination).apply(case.subject) == case.result


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_wrong_mapping_is_refused_with_the_text_of_the_official_server(
    case: MappingCase,
) -> None:
    with pytest.raises(MappingError) as refusal:
        check_mapping(case.source, case.destination)
    assert str(refusal.value) == case.error


def test_bytes_that_are_no_text_go_through() -> None:
    assert mapping("a.*", "b.{{splitFromLeft(1,1)}}").apply_bytes(b"a.\xff\xfe") == b"b.\xff.\xfe"
    assert mapping("a.*", "b.$1").apply("a.\udcff") == "b.\udcff"


def test_random_asks_for_a_number_below_its_argument() -> None:
    asked: list[int] = []

    def highest(below: int) -> int:
        asked.append(below)
        return below - 1

    random = compile_mapping("a", "b.{{random(7)}}", random_below=highest)
    assert random.apply("a") == "b.6"
    assert asked == [7]


TOKEN = st.text("abcde", min_size=1, max_size=6)


@pytest.mark.slow
@given(st.lists(TOKEN, min_size=1, max_size=6), st.data())
def test_wildcards_are_taken_from_their_places(tokens: list[str], data: st.DataObject) -> None:
    pattern = [data.draw(st.sampled_from([token, "*"])) for token in tokens]
    places = [index for index, token in enumerate(pattern) if token == "*"]
    numbers = data.draw(
        st.lists(st.integers(1, len(places)), max_size=5) if places else st.just([])
    )
    destination = ".".join(["to", *(f"${number}" for number in numbers)])
    wanted = ".".join(["to", *(tokens[places[number - 1]] for number in numbers)])
    made = mapping(".".join(pattern), destination)
    assert made.apply(".".join(tokens)) == wanted
    assert made.apply(".".join([*tokens, "more"])) is None


@given(TOKEN, st.integers(-2, 8), st.sampled_from(["splitFromLeft", "splitFromRight"]))
def test_splits_and_slices_lose_nothing(text: str, size: int, function: str) -> None:
    for name in (function, function.replace("split", "slice")):
        result = mapping("a.*", f"b.{{{{{name}(1,{size})}}}}").apply(f"a.{text}")
        assert result is not None
        assert result.removeprefix("b.").replace(".", "") == text
        pieces = result.removeprefix("b.").split(".")
        assert all(pieces)
        if name.startswith("slice") and 0 < size < len(text):
            assert max(len(piece) for piece in pieces) == size


@given(st.lists(TOKEN, min_size=1, max_size=3), st.integers(1, 50))
def test_a_partition_is_below_its_number_and_the_same_each_time(
    tokens: list[str], count: int
) -> None:
    made = mapping("a.>", f"b.{{{{partition({count})}}}}.>")
    subject = ".".join(["a", *tokens])
    result = made.apply(subject)
    assert result is not None
    assert result == made.apply(subject)
    assert 0 <= int(result.split(".")[1]) < count
    assert result.split(".")[2:] == tokens


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        ("b." + ".".join(["$1"] * 65), "used more than 64 times"),
        ("b.{{partition(3," + ",".join(["1"] * 65) + ")}}", "used more than 64 times"),
        (".".join(["{{partition(3)}}"] * 65), "used more than 64 times"),
        ("b" * 16_385, "more than 16384 characters"),
    ],
    ids=["wildcards", "arguments", "whole subjects", "characters"],
)
def test_destination_that_multiplies_a_message_is_refused(destination: str, reason: str) -> None:
    """What is applied to each message takes a small multiple of its size at most."""
    with pytest.raises(MappingError, match=reason):
        check_mapping("a.*", destination)


def test_largest_destinations_are_accepted() -> None:
    check_mapping("a.*", "b." + ".".join(["$1"] * 64))
    check_mapping("a.*", "b" * 16_384)


@given(st.binary(min_size=1, max_size=40), st.integers(1, 12))
def test_slices_are_joined_as_one_after_the_other(text: bytes, size: int) -> None:
    text = text.replace(b".", b"x")
    first = len(text) % size
    for function, starts in (
        ("slicefromleft", range(0, len(text), size)),
        ("slicefromright", sorted({0, *range(first, len(text), size)})),
    ):
        ends = [*starts[1:], len(text)]
        pieces = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        made = mapping("a.*", f"b.{{{{{function}(1,{size})}}}}").apply_bytes(b"a." + text)
        assert made == b".".join([b"b", *pieces])
