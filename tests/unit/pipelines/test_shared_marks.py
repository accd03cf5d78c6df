"""Which sinks share a read: decided once, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.definition.shared_marks import (
    SHARED_FILE,
    check_acknowledged,
    check_kept,
    members_of,
    read_members,
    sink_checkpoint,
    write_members,
)
from tradewind.pipelines.errors import PipelineError, PipelineFileError
from tradewind.pipelines.lake.lakes import SinkQuery

TEXT = """pipeline: copy
checkpoint: state
sources:
  orders: {stream: ORDERS, share: true}
sinks:
  one: {from: orders, parquet: one}
  two: {from: orders, parquet: two}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "p.yaml").write_text(TEXT)
    return load_pipeline(tmp_path / "p.yaml")


def test_members_are_those_that_can_share_when_they_first_run(pipeline: Pipeline) -> None:
    assert members_of(pipeline, "orders", ["one", "two"], {}) == ["one", "two"]
    assert members_of(pipeline, "orders", ["one"], {}) == []
    write_members(pipeline, "orders", ["one", "two"])
    before = read_members(pipeline)
    assert before == {"orders_shared": ["one", "two"]}
    assert members_of(pipeline, "orders", ["new", "one", "two"], before) == ["one", "two"]
    assert sink_checkpoint(pipeline, "one") == pipeline.query_checkpoint("orders_shared")
    assert sink_checkpoint(pipeline, "new") == pipeline.query_checkpoint("new")


def test_a_sink_with_a_query_of_its_own_keeps_it(pipeline: Pipeline) -> None:
    folder = pipeline.query_checkpoint("one")
    assert isinstance(folder, Path)
    folder.mkdir(parents=True)
    (folder / "metadata").write_text("{}")
    assert members_of(pipeline, "orders", ["one", "two", "three"], {}) == ["two", "three"]
    assert members_of(pipeline, "orders", ["one", "two"], {}) == []


def test_no_sink_leaves_the_query_that_has_written_it(pipeline: Pipeline) -> None:
    before = {"orders_shared": ["one", "two", "gone"]}
    check_kept(pipeline, {"orders_shared": ["one", "two"]}, before)
    with pytest.raises(PipelineFileError, match=r"p\.yaml:7: two was written by the shared query"):
        check_kept(pipeline, {"orders_shared": ["one"]}, before)


def test_a_damaged_list_of_members_is_an_error(pipeline: Pipeline) -> None:
    write_members(pipeline, "orders", ["one"])
    folder = pipeline.query_checkpoint("orders_shared")
    assert isinstance(folder, Path)
    (folder / SHARED_FILE).write_text("{")
    with pytest.raises(PipelineError, match="not a list of sinks"):
        read_members(pipeline)


def test_sinks_of_one_query_have_marks_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "6f1f6e0c-4a3c-4f0e-9d7a-0d3c2b1a0f9e"}')
    whole, one, two = (SinkQuery("p.x", tmp_path, part) for part in ("", "one", "two"))
    assert len({whole.query_id, one.query_id, two.query_id}) == 3
    assert one.query_id == SinkQuery("p.x", tmp_path, "one").query_id
    assert whole.notes == tmp_path
    assert one.notes != two.notes


def test_only_one_query_acknowledges(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(TEXT.replace("share: true", "ack_consumer: lake"))
    with pytest.raises(PipelineFileError, match="one, two read this source with several queries"):
        load_pipeline(path)
    path.write_text(TEXT.replace("share: true", "share: true, ack_consumer: lake"))
    pipeline = load_pipeline(path)
    check_acknowledged(pipeline, {"one", "two"})
    with pytest.raises(PipelineFileError, match="only one can acknowledge"):
        check_acknowledged(pipeline, {"one"})


def test_a_sink_must_not_have_the_name_of_a_shared_query(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(TEXT.replace("two:", "orders_shared:"))
    with pytest.raises(PipelineFileError, match="is the name of the shared query of orders"):
        load_pipeline(path)
