"""CSV and MessagePack payloads, and decoders that users write."""

from __future__ import annotations

import json
import math
import pickle
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tradewind.decoding import installed_decoders
from tradewind.decoding.decoder_contract import DecodedPayloads, Decoder, DecodingError
from tradewind.decoding.decoder_registry import open_decoder

NOTHING = pa.schema([])


def decoded(
    decoder: Decoder, *payloads: bytes | None, known: pa.Schema = NOTHING
) -> DecodedPayloads:
    array = pa.array(payloads, pa.binary())
    return decoder.decode(array, decoder.fields(array, known))


def rescued(found: DecodedPayloads) -> list[Any]:
    return [text and json.loads(text) for text in found.rescued.to_pylist()]


def test_csv_cells_without_names_are_strings_in_their_order() -> None:
    found = decoded(open_decoder("csv"), b'1,"a, b",007\n', b"2\r\n", "x\u2028y".encode(), None)
    assert found.columns.to_pylist() == [
        {"c1": "1", "c2": "a, b", "c3": "007"},
        {"c1": "2", "c2": None, "c3": None},
        {"c1": "x\u2028y", "c2": None, "c3": None},
        {"c1": None, "c2": None, "c3": None},
    ]
    assert found.reasons.null_count == 4


def test_csv_cells_with_types_are_read_as_these_or_rescued() -> None:
    decoder = open_decoder("csv?delimiter=;", "id bigint, price double, ok boolean, on date")
    found = decoded(decoder, b"1;2.5;true;2026-01-02;more", b"x;y;z;never", b";;;")
    first, second, third = found.columns.to_pylist()
    assert (first["id"], first["price"], first["ok"], str(first["on"])) == (
        1,
        2.5,
        True,
        "2026-01-02",
    )
    assert set(second.values()) == set(third.values()) == {None}
    assert rescued(found) == [
        {"c5": "more"},
        {"id": "x", "price": "y", "ok": "z", "on": "never"},
        None,
    ]


def test_csv_with_a_line_of_names() -> None:
    found = decoded(open_decoder("csv?header&delimiter=tab"), b"id\tname\n1\ta\n", b"id\n1\n2\n")
    assert found.columns.to_pylist()[0] == {"id": "1", "name": "a"}
    assert found.reasons.to_pylist() == [
        None,
        "the payload is more than a line of names and one record",
    ]


def test_csv_that_is_none_has_a_reason() -> None:
    found = decoded(open_decoder("csv"), b'"open', b"1\n2\n", b"", b"\xff", b"x" * 200_000)
    assert all(found.reasons.to_pylist())


@pytest.mark.parametrize("option", ["header=maybe", "delimiter=ab", "quote='"])
def test_an_unknown_option_is_refused(option: str) -> None:
    with pytest.raises(DecodingError, match="there are header, and delimiter="):
        open_decoder(f"csv?{option}")


def test_only_csv_has_options() -> None:
    with pytest.raises(DecodingError, match="only csv has options"):
        open_decoder("json?header")


def test_msgpack_maps_become_columns() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    row = {"id": 1, "raw": b"\x00", "at": moment, "x": math.nan, "in": {"a": [1, 2]}}
    found = decoded(open_decoder("msgpack"), msgspec.msgpack.encode(row), b"\xc1", b"\x93\x01", b"")
    first = found.columns.to_pylist()[0]
    assert math.isnan(first.pop("x"))
    assert first == {key: value for key, value in row.items() if key != "x"}
    assert [reason is None for reason in found.reasons.to_pylist()] == [True, False, False, False]


def test_msgpack_that_json_cannot_hold_is_rescued_without_loss() -> None:
    row = {
        "a": math.nan,
        "b": {1: 2},
        "c": b"\xff",
        "d": msgspec.msgpack.Ext(5, b"x"),
        "e": -math.inf,
    }
    decoder = open_decoder("msgpack", "id bigint")
    found = decoded(decoder, msgspec.msgpack.encode(row))
    assert rescued(found) == [
        {"a": "NaN", "b": [[1, 2]], "c": "/w==", "d": {"ext": 5, "data": "eA=="}, "e": "-Infinity"}
    ]


def test_a_msgpack_key_that_is_there_twice_rescues_the_payload() -> None:
    found = decoded(
        open_decoder("msgpack"), b"\x82\xa1a\x01\xa1a\x02", b"\x81\xa1a\xc4\x02\x82\x82"
    )
    assert rescued(found) == [{"_payload": "gqFhAaFhAg==", "a": 2}, {"a": "goI="}]
    assert found.columns.field("a").to_pylist() == ["2", '"goI="']


def test_keys_of_msgpack_that_are_no_strings_have_a_reason() -> None:
    found = decoded(open_decoder("msgpack"), b"\x81\x01\x02")
    assert found.reasons.to_pylist() == ["the key 1 is not a string"]


def reversed_texts(payloads: pa.BinaryArray) -> list[dict[str, Any] | None]:
    """A decoder of a user."""
    return [
        None if value is None else {"text": value.decode()[::-1], "size": len(value)}
        for value in payloads.to_pylist()
    ]


def as_asked(payloads: pa.BinaryArray, schema: pa.Schema) -> pa.StructArray:
    """A decoder of a user that is told the columns."""
    rows = [{name: str(value) for name in schema.names} for value in payloads.to_pylist()]
    return pa.array(rows, pa.struct([pa.field(name, pa.string()) for name in schema.names]))


def unreadable(payloads: pa.BinaryArray) -> list[dict[str, Any]]:
    """A decoder that returns a text that is none."""
    return [{"a": "\ud800"} for _ in payloads]


def too_few(payloads: pa.BinaryArray) -> list[dict[str, Any]]:
    """A decoder that is wrong."""
    return []


PLACE = f"{__name__}:reversed_texts"


def test_a_function_of_the_user_is_a_decoder() -> None:
    decoder = pickle.loads(pickle.dumps(open_decoder(PLACE)))
    found = decoded(decoder, b"ab", b"\xff", None)
    assert found.columns.to_pylist() == [
        {"text": "ba", "size": 2},
        {"text": None, "size": None},
        {"text": None, "size": None},
    ]
    first, second, third = found.reasons.to_pylist()
    assert first is third is None
    assert "can't decode byte 0xff" in second


def test_a_function_of_the_user_may_ask_for_the_schema_and_return_arrow() -> None:
    found = decoded(open_decoder(f"{__name__}:as_asked", "a string, b bigint"), b"x")
    assert found.columns.to_pylist() == [{"a": "b'x'", "b": None}]
    assert rescued(found) == [{"b": "b'x'"}]


def test_a_function_that_returns_too_few_rows_is_refused() -> None:
    with pytest.raises(DecodingError, match="one entry for each of its 2 payloads"):
        decoded(open_decoder(f"{__name__}:too_few"), b"a", b"b")


def test_a_function_that_returns_what_no_column_holds_is_told_so() -> None:
    with pytest.raises(DecodingError, match=r"column a: .*surrogates not allowed"):
        decoded(open_decoder(f"{__name__}:unreadable"), b"a")


@pytest.mark.parametrize("place", ["no_such_module:f", f"{__name__}:no_such_function"])
def test_a_function_that_is_not_there_is_refused_at_once(place: str) -> None:
    with pytest.raises(DecodingError, match=f"payload {place}: .*no_such_"):
        open_decoder(place)


def test_an_installed_package_can_offer_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tradewind.decoding.decoder_registry.installed_decoders", lambda: {"mirrored": PLACE}
    )
    found = decoded(open_decoder("mirrored"), b"ab")
    assert found.columns.to_pylist() == [{"text": "ba", "size": 2}]
    with pytest.raises(DecodingError, match=r"one of json, .*, mirrored, or module:function"):
        open_decoder("other")


def test_entry_points_are_looked_up_in_their_group() -> None:
    assert installed_decoders.GROUP == "tradewind.decoders"
    assert installed_decoders.installed_decoders() == {}
