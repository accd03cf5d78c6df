"""How a file says how much is read at once, how, and how sinks are written."""

from __future__ import annotations

import pytest
from pipeline_texts import pipeline_of_text

from tradewind.pipelines.errors import PipelineFileError
from tradewind.pipelines.flow.frames import source_options, trigger_options
from tradewind.pipelines.flow.sinks import write_options
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.spark.options.sink_options import parse_sink_options
from tradewind.spark.options.source_options import parse_options

TEXT = """pipeline: copy
checkpoint: state
server: nats://hub:4222
sources:
  orders:
    stream: ORDERS
    batch: 100
    batch_bytes: 5000
    batch_min: 10
    batch_wait: 1.5 seconds
    read_mode: network
    timeout: 2 minutes
    ack_consumer: lake
sinks:
  copy:
    from: orders
    stream: COPY
    subject: copy
    id: subject
    fail_on_unknown: false
    timeout: 90 s
"""
ADDRESS = PipelineAddress("")


def test_keys_of_a_source_reach_the_reader() -> None:
    pipeline = pipeline_of_text(TEXT)
    source = pipeline.sources["orders"]
    given = source_options(pipeline, source, ADDRESS) | trigger_options(source)
    options = parse_options(given)
    assert options.msgs_per_trigger_max == 100
    assert options.bytes_per_trigger_max == 5000
    assert options.msgs_per_trigger_min == 10
    assert options.trigger_delay_ns == 1_500_000_000
    assert (options.read_mode, options.timeout_seconds) == ("network", 120)
    assert options.ack_consumer == "lake"


def test_a_store_is_acknowledged_through_the_server() -> None:
    store = TEXT.replace("read_mode: network", "store: /data")
    pipeline = pipeline_of_text(store)
    source = pipeline.sources["orders"]
    options = parse_options(source_options(pipeline, source, ADDRESS) | trigger_options(source))
    assert (options.store_dir, options.servers) == ("/data", ("nats://hub:4222",))


def test_keys_of_a_sink_reach_the_writer() -> None:
    pipeline = pipeline_of_text(TEXT)
    options = parse_sink_options(write_options(pipeline, pipeline.sinks["copy"], ADDRESS))
    assert (options.id_column, options.fails_on_unknown, options.timeout_seconds) == (
        "id",
        False,
        90,
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("batch_min: 10", "batch_min: 101", 9, "101 is more than batch allows, 100"),
        ("    batch_min: 10\n", "", 9, "it needs batch_min"),
        ("batch_bytes: 5000", "batch_bytes: -1", 8, "batch_bytes must not be negative"),
        ("batch_wait: 1.5 seconds", "batch_wait: soon", 10, "'soon' is not a duration"),
        ("read_mode: network", "read_mode: net", 11, "'net' is not one of auto, blocks"),
        ("read_mode: network", "read_mode: blocks", 11, "blocks needs 'store'"),
        ("read_mode: network", "read_mode: backup", 11, "a stream with `follow: false`"),
        ("read_mode: network", "read_mode: network\n    store: x", 11, "leave 'store' out"),
        ("timeout: 2 minutes", "timeout: 2 hours", 12, "from 1 second to 1 hour"),
        ("ack_consumer: lake", "ack_consumer: a.b", 13, "'a.b' is not a name of a consumer"),
        ("    batch: 100\n", "    follow: false\n", 8, "only for a source that is followed"),
        ("stream: ORDERS", "bucket: B\n    follow: true", 14, "is not for a bucket source"),
        ("timeout: 90 s", "timeout: 90 ms", 21, "must be whole seconds"),
        ("timeout: 90 s", "mode: update", 19, "rows that change have no id"),
        (
            "stream: COPY\n    subject:",
            "bucket: COPY\n    key:",
            19,
            "'id' is not for a bucket sink",
        ),
    ],
)
def test_wrong_keys_are_errors_of_their_lines(old: str, new: str, line: int, message: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        pipeline_of_text(TEXT.replace(old, new, 1))
    assert (caught.value.line, message in caught.value.text) == (line, True), caught.value.text
