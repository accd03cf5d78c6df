"""Payloads of one value: texts and bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tradewind.decoding.decoder_contract import DecodingError
from tradewind.decoding.decoder_registry import open_decoder

NOTHING = pa.schema([])


def test_texts_are_one_column_and_bad_ones_have_a_reason() -> None:
    decoder = open_decoder("text")
    fields = decoder.fields(pa.array([], pa.binary()), NOTHING)
    good = decoder.decode(pa.array(["é".encode(), b"", None], pa.binary()), fields)
    assert good.columns.to_pylist() == [{"text": "é"}, {"text": ""}, {"text": None}]
    assert good.reasons.null_count == good.rescued.null_count == 3
    bad = decoder.decode(pa.array([b"a", b"\xff"], pa.binary()), fields)
    assert bad.columns.to_pylist() == [{"text": "a"}, {"text": None}]
    assert bad.reasons.to_pylist()[0] is None
    assert "can't decode byte 0xff" in bad.reasons.to_pylist()[1]


@pytest.mark.parametrize(("payload", "schema"), [("raw", "infer"), ("json", "raw")])
def test_raw_payloads_are_one_column(payload: str, schema: str) -> None:
    decoder = open_decoder(payload, schema)
    fields = decoder.fields(pa.array([], pa.binary()), NOTHING)
    found = decoder.decode(pa.array([b"\xff", None], pa.binary()), fields)
    assert found.columns.to_pylist() == [{"data": b"\xff"}, {"data": None}]
    assert found.reasons.null_count == found.rescued.null_count == 2


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(DecodingError, match=r"'jsonn' is no format; .*json, text, raw"):
        open_decoder("jsonn")


def test_text_has_no_schema() -> None:
    with pytest.raises(DecodingError, match="leave the schema out"):
        open_decoder("text", "a bigint")
