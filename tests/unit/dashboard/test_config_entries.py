"""Configurations in forms: each field is there, and what nobody touched stays as it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.configs import consumer_config_to_dict, stream_config_to_dict
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.field_shapes import Shape, shapes_of
from tradewind.api.stream_types import StreamConfig
from tradewind.dashboard.data.config_entries import (
    CONSUMER_FORM,
    STREAM_FORM,
    BadEntriesError,
    ConfigForm,
    apply_entries,
    blamed_field,
    entries_of,
    field_changes,
    with_filters,
    without_filters,
)
from tradewind.dashboard.data.config_fields import CONSUMER_LEFT_OUT, STREAM_LEFT_OUT
from tradewind.dashboard.data.human_values import (
    BadValueError,
    duration_entry,
    parse_duration_entry,
    parse_size_entry,
    size_entry,
)
from tradewind.durations import DAY_NS, HOUR_NS, MINUTE_NS

LIMIT = 2**63 - 1


def leaves(shapes: dict[str, Shape], prefix: str = "") -> set[str]:
    """The paths of all fields of a configuration."""
    found: set[str] = set()
    for name, shape in shapes.items():
        if shape.kind == "struct":
            found |= leaves(dict(shape.fields or {}), f"{prefix}{name}.")
        else:
            found.add(f"{prefix}{name}")
    return found


@pytest.mark.parametrize(
    ("form", "struct", "left_out"),
    [
        (STREAM_FORM, StreamConfig, STREAM_LEFT_OUT),
        (CONSUMER_FORM, ConsumerConfig, CONSUMER_LEFT_OUT),
    ],
)
def test_each_field_of_a_configuration_is_in_its_form(
    form: ConfigForm, struct: Any, left_out: frozenset[str]
) -> None:
    everything = leaves(dict(shapes_of(struct)))
    assert everything == set(form.fields) | left_out
    assert not set(form.fields) & left_out
    # A choice offers exactly the values that servers know.
    for path, field in form.fields.items():
        enum = form.shapes[path].enum
        if enum is not None:
            assert {value for value, _ in field.options} == {str(each.value) for each in enum}


@given(st.integers(1, LIMIT))
def test_a_duration_reads_back_as_it_was(duration_ns: int) -> None:
    assert parse_duration_entry(duration_entry(duration_ns)) == duration_ns


@given(st.integers(1, LIMIT))
def test_a_size_reads_back_as_it_was(size_bytes: int) -> None:
    assert parse_size_entry(size_entry(size_bytes)) == size_bytes


def test_values_are_written_as_people_do() -> None:
    for text, wanted in (
        ("7 days", 7 * DAY_NS),
        ("1 week", 7 * DAY_NS),
        ("1d12h", 36 * HOUR_NS),
        ("90 minutes", 90 * MINUTE_NS),
        ("1h 30 min", 90 * MINUTE_NS),
        (" 2H ", 2 * HOUR_NS),
        ("", 0),
    ):
        assert parse_duration_entry(text) == wanted, text
    assert duration_entry(36 * HOUR_NS) == "1d12h"
    assert duration_entry(7 * DAY_NS) == "7d"
    assert duration_entry(90 * MINUTE_NS) == "1h30m"
    for text, wanted in (
        ("512", 512),
        ("64 KiB", 1 << 16),
        ("1.5gb", 3 << 29),
        ("2 bytes", 2),
        ("1M", 1 << 20),
    ):
        assert parse_size_entry(text) == wanted, text
    assert size_entry(3 << 29) == "1536 MiB"
    assert size_entry(1500) == "1500 B"


@given(st.text(max_size=120))
def test_any_text_is_a_value_or_refused_in_words(text: str) -> None:
    for parse in (parse_duration_entry, parse_size_entry):
        found: int | str
        try:
            found = parse(text)
        except BadValueError as error:
            found = str(error)
        if isinstance(found, str):
            assert found.startswith("must be ")
            assert "\n" not in found
        else:
            assert 0 <= found <= LIMIT


def test_values_that_no_duration_or_size_has_are_refused() -> None:
    for text in ("-1h", "soon", "1x", "300y", "9" * 99, "1 2"):
        with pytest.raises(BadValueError, match="must be a duration"):
            parse_duration_entry(text)
    for text in ("-1", "1.5.5", "KiB", "1 XB", "9" * 30):
        with pytest.raises(BadValueError, match="must be"):
            parse_size_entry(text)
    with pytest.raises(BadValueError, match="less than 8 EiB"):
        parse_size_entry("8 EiB")


STREAM = stream_config_to_dict(
    StreamConfig(
        name="ORDERS",
        subjects=["orders.>", "more"],
        max_age=90 * MINUTE_NS,
        max_bytes=10 << 20,
        max_msgs=-1,
        metadata={"owner": "sales", "tradewind.chain": "sha256", "_nats.level": "2"},
    )
)
CONSUMER = with_filters(
    consumer_config_to_dict(
        ConsumerConfig(
            durable_name="packer",
            filter_subject="orders.eu",
            backoff=[10**9, 60 * 10**9],
            max_ack_pending=-1,
        )
    )
)


@pytest.mark.parametrize(("form", "config"), [(STREAM_FORM, STREAM), (CONSUMER_FORM, CONSUMER)])
def test_a_form_that_nobody_touched_changes_nothing(form: ConfigForm, config: Any) -> None:
    known = {**config, "future": {"of": ["a newer server"]}}
    made = apply_entries(form, known, entries_of(form, known), is_new=False)
    assert made == known
    assert not field_changes(form, known, made)
    # A field that a form leaves out stays, too.
    assert apply_entries(form, known, {}, is_new=False) == known


def test_only_what_was_touched_changes_and_is_told_in_units() -> None:
    entries = entries_of(STREAM_FORM, STREAM) | {
        "max_age": "7 days",
        "max_bytes": "",
        "placement.tags": "ssd, eu",
        "allow_atomic": "1",
        "name": "OTHER",
    }
    made = apply_entries(STREAM_FORM, STREAM, entries, is_new=False)
    assert made["max_age"] == 7 * DAY_NS
    assert made["max_bytes"] == -1
    assert made["placement"] == {"tags": ["ssd", "eu"]}
    assert made["allow_atomic"] is True
    # The name is fixed once there is a stream.
    assert made["name"] == "ORDERS"
    assert apply_entries(STREAM_FORM, STREAM, entries, is_new=True)["name"] == "OTHER"
    told = [msgspec.to_builtins(each) for each in field_changes(STREAM_FORM, STREAM, made)]
    assert [tuple(each.values()) for each in told] == [
        ("Maximum age", "1h30m", "7d"),
        ("Maximum size", "10 MiB", "no limit"),
        ("Batches may be published atomically", "no", "yes"),
        ("Servers with these tags", "none", "ssd, eu"),
    ]
    # What was a part goes as a whole.
    again = apply_entries(STREAM_FORM, made, {"placement.tags": ""}, is_new=False)
    assert "placement" not in again


def test_all_fields_that_are_not_valid_are_named_at_once() -> None:
    entries = {
        "name": " ",
        "subjects": "a..b",
        "max_age": "soon",
        "max_bytes": "big",
        "max_msgs": "-5",
        "retention": "forever",
        "sources": "{",
        "metadata": "no sign",
        "mirror.opt_start_time": "noon",
        "num_replicas": "9" * 30,
    }
    with pytest.raises(BadEntriesError) as caught:
        apply_entries(STREAM_FORM, STREAM, entries, is_new=True)
    assert set(caught.value.errors) == set(entries)
    assert all("must" in text and "\n" not in text for text in caught.value.errors.values())


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=9), st.text(max_size=9).filter(lambda text: "\r" not in text)
    )
)
def test_metadata_reads_back_whatever_it_is(metadata: dict[str, str]) -> None:
    config = {**STREAM, "metadata": metadata}
    text = entries_of(STREAM_FORM, config)["metadata"]
    made = apply_entries(STREAM_FORM, {"metadata": {}}, {"metadata": text}, is_new=False)
    shown = {key: value for key, value in metadata.items() if not key.startswith("_nats.")}
    assert (made.get("metadata") or {}) == shown


def test_a_choice_of_a_newer_server_stays() -> None:
    config = {**STREAM, "retention": "tomorrow"}
    assert entries_of(STREAM_FORM, config)["retention"] == "tomorrow"
    entries = entries_of(STREAM_FORM, config)
    assert apply_entries(STREAM_FORM, config, entries, is_new=False) == config


def test_filters_are_one_field() -> None:
    assert CONSUMER["filter_subjects"] == ["orders.eu"]
    assert "filter_subject" not in CONSUMER
    assert without_filters(CONSUMER)["filter_subject"] == "orders.eu"
    both = {**CONSUMER, "filter_subjects": ["a", "b"]}
    assert without_filters(both)["filter_subjects"] == ["a", "b"]


def test_the_words_of_a_server_lead_to_a_field() -> None:
    words = "stream name already in use with a different configuration"
    assert blamed_field(STREAM_FORM, words) == "name"
    assert blamed_field(STREAM_FORM, "duplicates window can not be negative") == "duplicate_window"
    assert blamed_field(CONSUMER_FORM, "max waiting can not be updated") == "max_waiting"
    assert blamed_field(STREAM_FORM, "insufficient resources") == ""
