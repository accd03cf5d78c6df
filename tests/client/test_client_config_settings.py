"""Keyword settings: durations in seconds, errors in our words, types equal to the structs."""

from __future__ import annotations

import contextlib
import datetime
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import sweep

from tradewind.api.base import ApiStruct
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.field_shapes import Shape, shapes_of
from tradewind.api.stream_types import ConsumerLimits, StreamConfig, StreamSource
from tradewind.client.core.duration_input import DurationInput, duration_ns
from tradewind.client.errors import OptionsError
from tradewind.client.streams import setting_types
from tradewind.client.streams.config_settings import config_of, make_config
from tradewind.client.streams.setting_types import ConsumerSettings, StreamSettings
from tradewind.durations import DURATION_NS_MAX, exact_setting_ns

SECOND = 1_000_000_000


def durations_of(struct: type[ApiStruct]) -> list[str]:
    """The members of a configuration that are durations, or lists of them."""
    return [name for name, shape in shapes_of(struct).items() if (shape.item or shape).is_duration]


DURATIONS = [
    (struct, name) for struct in (StreamConfig, ConsumerConfig) for name in durations_of(struct)
]


def test_all_durations_of_the_structs_are_found() -> None:
    assert {name for _, name in DURATIONS} >= {
        "max_age",
        "duplicate_window",
        "subject_delete_marker_ttl",
        "ack_wait",
        "backoff",
        "max_expires",
        "idle_heartbeat",
        "inactive_threshold",
        "priority_timeout",
    }


@sweep(("struct", "name"), DURATIONS)
@sweep(
    ("value", "nanoseconds"),
    [
        (30, 30 * SECOND),
        (0, 0),
        (0.25, SECOND // 4),
        (datetime.timedelta(hours=2), 7200 * SECOND),
        ("30s", 30 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("7d", 604_800 * SECOND),
        ("1w1d1.5s", 8 * 86_400 * SECOND + 1_500_000_000),
    ],
)
def test_a_duration_is_seconds_a_timedelta_or_a_text(
    struct: type[ApiStruct], name: str, value: Any, nanoseconds: int
) -> None:
    is_list = shapes_of(struct)[name].kind == "list"
    made = make_config(struct(), {name: [value] if is_list else value})
    assert getattr(made, name) == ([nanoseconds] if is_list else nanoseconds)


@sweep(("struct", "name"), DURATIONS)
@sweep(
    "value", [-1, -0.5, float("nan"), float("inf"), 1e300, 9_223_372_037, "soon", "-1s", True, b"1"]
)
def test_a_duration_that_cannot_be_is_named(struct: type[ApiStruct], name: str, value: Any) -> None:
    is_list = shapes_of(struct)[name].kind == "list"
    place = rf"{name}\[0\]" if is_list else name
    with pytest.raises(OptionsError, match=rf"^{place} must .*; numbers are seconds$"):
        make_config(struct(), {name: [value] if is_list else value})


def test_numbers_in_configurations_stay_nanoseconds() -> None:
    base = StreamConfig(max_age=5, consumer_limits=ConsumerLimits(inactive_threshold=7))
    made = make_config(base, {"duplicate_window": 1})
    assert (made.max_age, made.duplicate_window) == (5, SECOND)
    assert made.consumer_limits.inactive_threshold == 7
    again = make_config(StreamConfig(), {"consumer_limits": ConsumerLimits(inactive_threshold=7)})
    assert again.consumer_limits.inactive_threshold == 7
    nested = make_config(StreamConfig(), {"consumer_limits": {"inactive_threshold": 7}})
    assert nested.consumer_limits.inactive_threshold == 7 * SECOND
    assert config_of(StreamConfig, {"max_age": 5, "subjects": None}) == StreamConfig(max_age=5)
    with pytest.raises(OptionsError, match=r"^max_age must be nanoseconds.*not 0\.5; numbers are"):
        config_of(StreamConfig, {"max_age": 0.5})


@given(st.integers(0, DURATION_NS_MAX // SECOND))
def test_whole_seconds_are_exact(seconds: int) -> None:
    assert duration_ns("x", seconds) == seconds * SECOND
    assert duration_ns("x", f"{seconds}s") == seconds * SECOND


@given(st.text("0123456789.wdhms", max_size=12))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= exact_setting_ns(text) <= DURATION_NS_MAX


NAIVE = datetime.datetime(2030, 1, 1)  # noqa: DTZ001 - the point


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"retention": "limit"},
            "retention must be one of limits, interest, workqueue; did you mean 'limits'?",
        ),
        ({"storage": "tape"}, "storage must be one of file, memory, not 'tape'"),
        ({"discard": None}, "discard must be one of old, new, not None"),
        ({"compression": "s3"}, "compression must be one of none, s2, not 's3'"),
        ({"max_mgs": 1}, "a stream has no setting 'max_mgs'; did you mean 'max_msgs'?"),
        ({"max_msgs": "5"}, "max_msgs must be a whole number, not '5'"),
        ({"max_msgs": 1.5}, "max_msgs must be a whole number, not 1.5"),
        ({"max_msgs": True}, "max_msgs must be a whole number, not True"),
        (
            {"max_msg_size": 2**31},
            "max_msg_size must be a number from -2147483648 to 2147483647, not 2147483648",
        ),
        ({"subjects": "orders.>"}, "subjects must be a list, not 'orders.>'; pass ['orders.>']"),
        ({"subjects": ["a", 5]}, "subjects[1] must be a text, not 5"),
        ({"subjects": 5}, "subjects must be a list, not 5"),
        ({"sealed": 1}, "sealed must be True or False, not 1"),
        ({"name": 5}, "name must be a text, not 5"),
        ({"metadata": {"a": 1}}, "metadata['a'] must be a text, not 1"),
        ({"metadata": ["a"]}, "metadata must be a mapping of texts, not ['a']"),
        ({"mirror": "A"}, "mirror must be a StreamSource or a mapping of its members, not 'A'"),
        ({"mirror": {"nam": "A"}}, "mirror has no setting 'nam'; did you mean 'name'?"),
        ({"sources": [{"name": 5}]}, "sources[0].name must be a text, not 5"),
        (
            {"mirror": {"name": "A", "opt_start_time": "now"}},
            (
                "mirror.opt_start_time must be a datetime with a time zone or a text such as "
                "2026-01-31T12:00:00Z, not 'now'"
            ),
        ),
        (
            {"mirror": StreamSource(name="A", opt_start_time=NAIVE)},  # type: ignore[arg-type]
            (
                "mirror.opt_start_time must have a time zone, for example datetime.now(UTC), and "
                "2030-01-01 00:00:00 has none"
            ),
        ),
    ],
)
def test_what_cannot_be_is_said_in_our_words(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        make_config(StreamConfig(), settings)
    assert str(caught.value) == text


def test_a_wrong_member_of_a_configuration_is_named_too() -> None:
    wrong = StreamConfig(retention="limit")  # type: ignore[arg-type]
    with pytest.raises(OptionsError, match=r"^retention must be one of limits"):
        make_config(wrong, {})
    with pytest.raises(OptionsError, match=r"^config must be a StreamConfig or a mapping"):
        config_of(StreamConfig, "ORDERS")  # type: ignore[arg-type]


# ------------------------------------------------------------------ types


def settings_type(struct: type[ApiStruct]) -> Any:
    """The TypedDict of a struct, by its name."""
    return getattr(setting_types, f"{struct.__name__.removesuffix('Config')}Settings")


def expected(shape: Shape) -> Any:
    """The type that a setting needs for a member of this shape."""
    plain: dict[str, Any] = {
        "number": int,
        "time": datetime.datetime | str,
        "map": Mapping[str, str],
        "bool": bool,
        "string": str,
    }
    wanted: Any = plain.get(shape.kind)
    if shape.is_duration:
        wanted = DurationInput
    elif shape.kind == "list" and shape.item is not None:
        wanted = Sequence[expected(shape.item)]  # type: ignore[misc]
    elif shape.enum is not None:
        words = tuple(str(each.value) for each in shape.enum)
        wanted = shape.enum | Literal[words]  # type: ignore[valid-type]
    elif shape.struct is not None:
        wanted = shape.struct | settings_type(shape.struct)
    may_be_none = shape.is_nullable and shape.kind not in ("list", "map")
    return wanted | None if may_be_none else wanted


def parts(hint: Any) -> Any:
    """A type in a form that can be compared: unions have no order."""
    if get_origin(hint) in (Union, types.UnionType):
        return frozenset(parts(each) for each in get_args(hint))
    if get_origin(hint) is Sequence:
        return (Sequence, parts(get_args(hint)[0]))
    return hint


@pytest.mark.parametrize(
    ("struct", "settings"), [(StreamConfig, StreamSettings), (ConsumerConfig, ConsumerSettings)]
)
def test_settings_have_the_members_of_the_structs(struct: type[ApiStruct], settings: type) -> None:
    todo = [(struct, settings)]
    for kind, typed in todo:
        there = get_type_hints(typed)
        shapes = shapes_of(kind)
        assert set(there) == set(shapes), typed
        for name, shape in shapes.items():
            assert parts(there[name]) == parts(expected(shape)), f"{typed.__name__}.{name}"
            inner = (shape.item or shape).struct
            if inner is not None:
                todo.append((inner, settings_type(inner)))
