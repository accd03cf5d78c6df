"""Schemas of tables in a bucket of the server, which get new versions."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

import tradewind
import tradewind.sync
from tradewind.decoding.decoder_contract import DecodingError
from tradewind.pipelines.lake.lakes import SinkQuery
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.tables.table_decoders import is_settled, table_decoder
from tradewind.pipelines.tables.table_spec import TableSpec
from tradewind.pipelines.tables.table_writing import StreamBatchStep

LONG, TEXT = {"name": "id", "type": "long"}, {"name": "note", "type": "string"}


def record(*fields: dict[str, str]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


def payload(number: int, schema: dict[str, Any], **values: Any) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(schema), values)
    return struct.pack(">bi", 0, number) + target.getvalue()


def test_a_version_that_comes_later_is_known_to_the_next_batch(tmp_path: Path) -> None:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        address = PipelineAddress(server.url)
        spec = TableSpec("/lake", payload="avro", schema="bucket:schemas")
        connection.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"])
        with pytest.raises(DecodingError, match="bucket:schemas: the bucket does not exist"):
            table_decoder("ORDERS", spec, address)
        bucket = connection.jetstream().kv.create("schemas")

        def publish(version: int, schema: dict[str, Any]) -> None:
            entry = {"subject": "orders.>", "format": "avro", "version": version, "id": version}
            bucket.put(f"v{version}", json.dumps(entry | {"schema": schema}).encode())

        publish(1, record(LONG))
        assert not is_settled(spec)

        def reopened() -> Any:
            return table_decoder("ORDERS", spec, address)

        query = SinkQuery("test", tmp_path)
        step = StreamBatchStep(
            "ORDERS", spec, reopened(), query, lambda _notes: None, None, reopened
        )
        columns = step.begin(None).schema
        assert columns.names[4:5] == ["id"]
        publish(2, record(LONG, TEXT))
        rows = step.begin(columns)
        values = [payload(1, record(LONG), id=1), payload(2, record(LONG, TEXT), id=2, note="x")]
        batch = pa.record_batch({"data": pa.array(values, pa.binary())})
        assert rows.decoder is not None
        fields = rows.decoder.fields(batch.column("data"), rows.fields)
        decoded = rows.decoder.decode(batch.column("data"), fields)
        assert decoded.columns.to_pylist() == [{"id": 1, "note": None}, {"id": 2, "note": "x"}]
        assert decoded.reasons.null_count == 2


def test_a_function_that_a_stream_names_runs_only_if_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = "tests_of_decoders_that_do_not_exist:function"
    spec = TableSpec("/lake", payload=place)
    monkeypatch.delenv("TRADEWIND_DECODERS", raising=False)
    with pytest.raises(DecodingError, match=f"set TRADEWIND_DECODERS={place}"):
        table_decoder("ORDERS", spec, PipelineAddress())
    # It is looked for, and so imported, only then.
    monkeypatch.setenv("TRADEWIND_DECODERS", f"other:function, {place}")
    with pytest.raises(DecodingError, match="No module named"):
        table_decoder("ORDERS", spec, PipelineAddress())
