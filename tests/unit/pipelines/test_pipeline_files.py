"""Pipeline files: what is accepted, and which line and what hint an error has."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from pipeline_texts import pipeline_of_text

from tradewind.pipelines.definition import model
from tradewind.pipelines.definition.loading import load_pipeline, names_in
from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.definition.spark_settings import SparkSettings
from tradewind.pipelines.errors import PipelineError, PipelineFileError

GOOD = """\
pipeline: revenue
checkpoint: state
trigger: 2 seconds
sources:
  orders:
    stream: ORDERS
    payload:
      schema: {id: bigint not null, region: string}
      bad: skip
    watermark: {delay: 10 seconds}
  regions:
    csv: regions
steps:
  named:
    sql: |
      select * from orders
      join regions using (region)
  minutes:
    from: orders
    window: 1 minute
    by: region
    keep: {revenue: sum(amount)}
sinks:
  live:
    from: minutes
    bucket: LIVE
    key: "{region}"
    mode: update
  lake:
    from: named
    parquet: lake
    partition_by: [region]
"""


def load(text: str) -> Pipeline:
    return pipeline_of_text(text)


def test_a_pipeline_has_its_tables_and_what_they_are_made_from() -> None:
    pipeline = load(GOOD)
    assert pipeline.name == "revenue"
    assert pipeline.trigger_seconds == 2
    assert pipeline.uses["named"] == {"orders", "regions"}
    assert pipeline.origins["minutes"] == {"orders"}
    assert [sink.kind for sink in pipeline.sinks.values()] == ["bucket", "parquet"]
    assert pipeline.sources["orders"].is_followed
    assert not pipeline.sources["regions"].is_followed


@pytest.mark.parametrize(("text", "seconds"), [("fast", 0), ("now", None), ("500 ms", 0.5)])
def test_triggers(text: str, seconds: float | None) -> None:
    assert load(GOOD.replace("2 seconds", text)).trigger_seconds == seconds


WRONG = [
    # what is replaced, by what, line, part of the message
    ("stream: ORDERS", "strem: ORDERS", 6, "key 'strem' does not exist; did you mean 'stream'?"),
    ("trigger:", "triger:", 3, "key 'triger' does not exist; did you mean 'trigger'?"),
    ("bad: skip", "bad: skp", 9, "payload.bad: 'skp' is not one of fail, skip"),
    ("bad: skip", "bda: skip", 9, "key 'bda' does not exist; did you mean 'bad'?"),
    (
        "mode: update",
        "mode: updat",
        28,
        "'updat' is not one of append, update, complete, upsert",
    ),
    ("10 seconds", "10 fortnights", 10, "'10 fortnights' is not a duration"),
    ("2 seconds", "soon", 3, "'soon' is not fast, now"),
    ("from: named", "from: nmaed", 30, "table 'nmaed' does not exist; did you mean 'named'?"),
    ("from: orders", "from: later", 19, "table 'later' does not exist before this step"),
    ("window: 1 minute", "window: 1", 20, "window: expected `str`, got `int`"),
    ("    keep: {revenue: sum(amount)}\n", "", 18, "a window needs `keep`"),
    ("csv: regions", "csv: regions\n    json: x", 13, "exactly one of stream, bucket, parquet"),
    ("csv: regions", "subjects: x", 11, "exactly one of stream, bucket, parquet"),
    ("csv: regions", "csv: regions\n    start_seq: 3", 13, "'start_seq' is not for a csv source"),
    ("csv: regions", "csv: regions\n    follow: true", 11, "csv folder that is followed needs"),
    ("parquet: lake", "parquet: lake\n    mode: update", 32, "a parquet folder only grows"),
    ("parquet: lake", "delta: lake\n    mode: update", 32, "or mode upsert with the columns"),
    ("parquet: lake", "delta: lake\n    mode: upsert", 29, "mode upsert needs 'key'"),
    ("parquet: lake", "delta: lake\n    key: region", 32, "'key' needs mode: upsert"),
    ("parquet: lake", "delta: x\n    mode: upsert\n    key: [a, a]", 33, "named twice"),
    ("parquet: lake", "parquet: lake\n    mode: upsert", 32, "a parquet folder only grows"),
    ("mode: update", "mode: upsert", 28, "upsert is for delta and iceberg sinks"),
    ('key: "{region}"', "key: [region]", 27, "key of a bucket sink must be a string"),
    ("parquet: lake", "parquet: lake\n    subject: x", 32, "'subject' is not for a parquet sink"),
    ('"{region}"', '"{region"', 27, "a column is written as {name}"),
    ('    key: "{region}"\n', "", 24, "a bucket sink needs 'key'"),
    ("  regions:", "  orders:", 11, "'orders' appears twice; first in line 5"),
    ("  named:", "  Orders:", 14, "'Orders' is a name twice, in sources too"),
    ("  named:", "  1named:", 14, "is not a name for SQL"),
    ("pipeline: revenue", "pipeline: re venue", 1, "is not a name"),
    ("pipeline: revenue", "checkpoint: 5", 2, "'checkpoint' appears twice"),
    ("sinks:", "sinks: [", 25, "not valid YAML"),
    ("select * from orders", "select * from minutes", 15, "minutes, which comes after it"),
    ("select * from orders", "select 1 from regions", 30, "add `follow: true`"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), WRONG)
def test_errors_name_the_line_and_what_would_be_right(
    old: str, new: str, line: int, message: str
) -> None:
    text = GOOD.replace(old, new, 1)
    if old == "select * from orders" and "regions" in new:
        text = text.replace("join regions using (region)", "")
    with pytest.raises(PipelineFileError) as caught:
        load(text)
    assert message in caught.value.text
    assert caught.value.line == line
    assert str(caught.value).startswith(f"p.yaml:{line}")


@pytest.mark.parametrize("section", ["sources", "sinks"])
def test_a_pipeline_without_sources_or_sinks_is_refused(section: str) -> None:
    head, _, rest = GOOD.partition(f"{section}:\n")
    kept = head + rest[rest.index("steps:") :] if section == "sources" else head
    with pytest.raises(
        PipelineFileError, match=f"a pipeline needs at least one entry in {section}"
    ):
        load(kept)


def test_a_python_step_must_name_a_function_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def enrich(orders):\n    return orders\n")
    path = tmp_path / "p.yaml"
    text = GOOD.replace("from: named", "from: rich").replace(
        "steps:\n", "steps:\n  rich:\n    from: orders\n    python: steps.py:enrich\n"
    )
    path.write_text(text)
    assert load_pipeline(path).steps["rich"].kind == "python"
    path.write_text(text.replace("steps.py:enrich", "steps.py:enrch"))
    with pytest.raises(PipelineFileError, match=r"p.yaml:16: .* did you mean 'enrich'"):
        load_pipeline(path)
    path.write_text(text.replace("steps.py:enrich", "step.py:enrich"))
    with pytest.raises(PipelineFileError, match=r"p.yaml:16: step.py: No such file"):
        load_pipeline(path)
    (tmp_path / "steps.py").write_text("def enrich(:\n")
    path.write_text(text)
    with pytest.raises(PipelineFileError, match=r"steps.py: invalid syntax"):
        load_pipeline(path)


def test_a_dead_letter_is_instead_of_skipping() -> None:
    letter = "dead_letter: {stream: DEAD, subject: 'dead.{subject}'}"
    assert load(GOOD.replace("bad: skip", letter)).sources["orders"].payload
    with pytest.raises(PipelineFileError, match="use bad or dead_letter"):
        load(GOOD.replace("bad: skip", f"bad: skip\n      {letter}"))


def test_aliases_of_aliases_do_not_fill_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)
    ]
    with pytest.raises(PipelineFileError, match="more than 100000 values"):
        load("\n".join(lines))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="No such file"):
        load_pipeline(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(PipelineFileError, match=r"binary.yaml:2: byte 8 is not UTF-8"):
        load_pipeline(tmp_path / "binary.yaml")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    with pytest.raises(PipelineFileError, match="the file is empty"):
        load_pipeline(tmp_path / "empty.yaml")


def test_names_in_texts_and_comments_do_not_count() -> None:
    sql = "select 'orders' -- from orders\n/* join orders */ from `Regions` r"
    assert names_in(sql, ["orders", "regions"]) == {"regions"}


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "PIPELINES.md"


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("The file", model.Head),
        ("spark", SparkSettings),
        ("source", model.Source),
        ("payload", model.Payload),
        ("watermark", model.Watermark),
        ("step", model.Step),
        ("sink", model.Sink),
    ],
)
def test_every_key_is_documented(heading: str, kind: type[msgspec.Struct]) -> None:
    parts = re.split(r"^#+ (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    table = parts[parts.index(heading) + 1]
    first_cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    named = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert set(named) == known


TABLE_SOURCE = """\
pipeline: p
checkpoint: state
sources:
  ticks: {stream: TICKS}
  orders:
    stream: ORDERS
    follow: false
    payload:
      format: table
steps:
  both:
    sql: select o.* from ticks cross join orders o
sinks:
  lake: {from: both, parquet: out}
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("follow: false", "follow: true", 9, "of a stream with `follow: false`"),
        ("stream: ORDERS", "bucket: ORDERS", 9, "of a stream with `follow: false`"),
        ("stream: ORDERS", "stream: ORDERS*", 6, "name one stream"),
        ("follow: false", "subjects: a.*\n    follow: false", 7, "subjects is not for"),
        ("format: table", "format: table\n      bad: skip", 8, "takes no other keys"),
    ],
)
def test_a_source_that_is_a_table_is_one_stream(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(TABLE_SOURCE)
    assert load_pipeline(path).sources["orders"].payload == model.Payload("table")
    path.write_text(TABLE_SOURCE.replace(old, new))
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(path)
    assert (caught.value.line, message in caught.value.text) == (line, True), caught.value.text
