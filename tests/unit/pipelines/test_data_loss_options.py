"""What commands tell the source about lost data, and what it then says about it."""

from __future__ import annotations

import pytest
from pipeline_texts import pipeline_of_text

from tradewind.pipelines.flow.frames import source_options
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sql.desk import SqlQuestion, where_of
from tradewind.spark.contract.data_loss import LossRule, MissingMessages, rule_of
from tradewind.spark.errors import DataLossError
from tradewind.spark.options.source_options import parse_options

FILE = """\
pipeline: copy
checkpoint: state
sources:
  orders: {{stream: ORDERS{said}}}
  old: {{stream: OLD, follow: false{said}}}
sinks:
  out: {{from: orders, stream: OUT, subject: out.x}}
"""


def rule(said: str, source: str) -> LossRule:
    pipeline = pipeline_of_text(FILE.format(said=said))
    given = source_options(pipeline, pipeline.sources[source], PipelineAddress())
    return rule_of(parse_options(given), given["stream"], replaces=False)


@pytest.mark.parametrize(
    ("said", "fails", "forgives_head"),
    [("", True, True), (", data_loss: fail", True, False), (", data_loss: continue", False, False)],
)
def test_a_source_has_three_ways_with_lost_data(
    said: str, fails: bool, forgives_head: bool
) -> None:
    found = rule(said, "old")
    assert (found.fails, found.forgives_head) == (fails, forgives_head)
    if fails:
        with pytest.raises(DataLossError, match="set data_loss: continue on the source") as caught:
            found.judge(MissingMessages(), MissingMessages(1, 5, 5))
        assert "failOnDataLoss" not in str(caught.value)


def test_a_query_is_not_advised_to_set_an_option() -> None:
    options = parse_options(
        {**where_of(SqlQuestion("", PipelineAddress("nats://x"))), "stream": "S"}
    )
    found = rule_of(options, "S", replaces=False)
    assert found.forgives_head
    with pytest.raises(DataLossError, match=r"\(--store\), or run the query again$"):
        found.judge(MissingMessages(3, 1, 3), MissingMessages(1, 5, 5))
