"""Parameters and includes of pipeline files: values, places of errors, and what is not shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.cli.main import run
from tradewind.pipelines.definition.including import DEPTH_MAX
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.definition.pipeline_parameters import Parameters, parse_settings
from tradewind.pipelines.errors import PipelineError, PipelineFileError

HEAD = "pipeline: copy\ncheckpoint: state\n"
TEXT = f"""{HEAD}sources:
  orders:
    stream: ${{STREAM}}
    batch: ${{BATCH:500}}
    follow: ${{FOLLOW:true}}
    password: ${{PASSWORD:hidden}}
    user: me
steps:
  some:
    sql: |
      select *
      from orders where subject like '$${{x}}' and data > '${{LEAST:1}}'
sinks:
  lake: {{from: some, parquet: "lake/${{STREAM}}"}}
"""
Load = Callable[..., Pipeline]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def read(text: str, **values: str) -> Pipeline:
        path = tmp_path / "p.yaml"
        path.write_text(text)
        return load_pipeline(path, Parameters(values, {"LEAST": "7"}))

    return read


def test_values_come_from_the_command_then_the_environment_then_the_default(load: Load) -> None:
    pipeline = load(TEXT, STREAM="ORDERS", BATCH="20", PASSWORD="12345")
    orders = pipeline.sources["orders"]
    assert (orders.stream, orders.batch, orders.follow) == ("ORDERS", 20, True)
    assert orders.password == "12345"  # text stays text where the key takes text
    assert "'${x}' and data > '7'" in pipeline.steps["some"].sql
    assert pipeline.sinks["lake"].parquet == "lake/ORDERS"
    assert load(TEXT, STREAM="A", LEAST="9").steps["some"].sql.endswith("'9'\n")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("${STREAM}", "${STREAMS}", 5, "parameter STREAMS is not set"),
        ("${LEAST:1}", "${MOST}", 14, "--set MOST=value, or write a default: ${MOST:default}"),
        ("$${x}", "${x.y}", 14, "write $${ for the characters ${"),
        ("${BATCH:500}", "${BATCH:many}", 6, "batch: expected `int`, got `str`"),
        ("stream: ${STREAM}", "${STREAM}: ORDERS", 5, "key '${STREAM}' does not exist"),
    ],
)
def test_errors_name_the_line_and_the_parameter(
    load: Load, old: str, new: str, line: int, message: str
) -> None:
    with pytest.raises(PipelineFileError) as caught:
        load(TEXT.replace(old, new, 1), STREAM="ORDERS")
    assert (caught.value.line, message in caught.value.text) == (line, True), caught.value.text


def test_a_value_that_no_file_uses_is_a_typing_error(load: Load, tmp_path: Path) -> None:
    values = Parameters({"STREAM": "ORDERS", "BATHC": "5"}, {})
    (tmp_path / "p.yaml").write_text(TEXT)
    load_pipeline(tmp_path / "p.yaml", values)
    with pytest.raises(PipelineError, match=r"--set BATHC: .*did you mean 'BATCH'"):
        values.check_used()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["NAME"], "write NAME=value"),
        (["1X=a"], "write NAME=value"),
        (["A=1", "A=2"], "--set A: the parameter is given twice"),
    ],
)
def test_wrong_settings_say_what_would_be_right(words: list[str], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        parse_settings(words)
    assert parse_settings(["A=b=c", "B="]) == {"A": "b=c", "B": ""}


def test_secrets_are_in_no_message_and_not_in_explain(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PipelineFileError) as caught:
        load(TEXT.replace("copy", "'${TOKEN}'"), TOKEN="s3,cret", STREAM="A")
    assert "s3,cret" not in str(caught.value)
    assert "(not shown)" in str(caught.value)
    path = tmp_path / "p.yaml"
    path.write_text(f"description: by ${{API_TOKEN}}\n{TEXT}")
    words = ["--set", "API_TOKEN=abc123", "--set", "STREAM=ORDERS"]
    assert run(["pipeline", "explain", str(path), "--no-spark", *words]) == 0
    printed = capsys.readouterr().out
    assert "by (not shown)" in printed
    assert "abc123" not in printed
    assert run(["pipeline", "explain", str(path), "--no-spark", *words, "--set", "X=1"]) == 1
    assert "--set X: no file uses this parameter" in capsys.readouterr().err


# -------------------------------------------------------------------------- includes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "common").mkdir()
    (tmp_path / "p.yaml").write_text(
        f"{HEAD}include: [common/sources.yaml, '${{MORE:common/more.yaml}}']\n"
        "steps:\n  big: {sql: select * from small}\n"
        "sinks:\n  lake: {from: big, parquet: lake}\n"
    )
    (tmp_path / "common" / "sources.yaml").write_text(
        "include: server.yaml\nsources:\n  orders: {stream: ORDERS}\n"
    )
    (tmp_path / "common" / "server.yaml").write_text("server: nats://hub:4222\n")
    (tmp_path / "common" / "more.yaml").write_text(
        "steps:\n  small:\n    sql: select * from orders\n"
    )
    return tmp_path


def test_included_tables_come_before_those_of_the_file(folder: Path) -> None:
    pipeline = load_pipeline(folder / "p.yaml")
    assert pipeline.head.server == "nats://hub:4222"
    assert list(pipeline.steps) == ["small", "big"]
    assert pipeline.origins["big"] == {"orders"}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("steps:\n  small: {sqll: x}\n", "more.yaml:2", "key 'sqll' does not exist"),
        ("steps: {}\nserver: nats://b\n", "more.yaml:2", "'server' is in .*server.yaml:1 too"),
        ("steps:\n  big: {sql: x}\n", "p.yaml:5", "'big' is in .*more.yaml:2 too"),
        ("include: ../p.yaml\n", "more.yaml:1", "p.yaml includes more.yaml includes p.yaml"),
        ("include: sources.yaml\n", "more.yaml:1", "included twice, first by .*p.yaml:3"),
        ("include: [1]\n", "more.yaml:1", "include is a file, or a list of files"),
        ("include: none.yaml\n", "more.yaml:1", "there is no file"),
        ("- 1\n", "more.yaml:1", "a pipeline is a mapping"),
        ("steps:\n  small: {sql: '${NONE}'}\n", "more.yaml:2", "parameter NONE is not set"),
    ],
)
def test_errors_name_the_file_that_has_them(
    folder: Path, text: str, place: str, message: str
) -> None:
    (folder / "common" / "more.yaml").write_text(text)
    with pytest.raises(PipelineFileError, match=message) as caught:
        load_pipeline(folder / "p.yaml", Parameters({}, {}))
    assert f"{place}: " in str(caught.value)


def test_includes_have_a_depth(tmp_path: Path) -> None:
    for number in range(DEPTH_MAX + 2):
        (tmp_path / f"{number}.yaml").write_text(f"include: {number + 1}.yaml\n")
    with pytest.raises(PipelineFileError, match=f"more than {DEPTH_MAX} deep"):
        load_pipeline(tmp_path / "0.yaml")
