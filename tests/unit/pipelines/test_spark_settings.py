"""The section `spark` of a pipeline's file: what it may say, and what is never shown of it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from pipeline_texts import pipeline_of_text

from tradewind.cli.spark.demo import run as run_demo
from tradewind.cli.spark.sql_command import run_sql
from tradewind.pipelines.checks.explaining import explain_lines
from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.definition.spark_settings import HIDDEN, apply_settings
from tradewind.pipelines.demo.demo_server import DemoSettings
from tradewind.pipelines.errors import PipelineError, PipelineFileError
from tradewind.pipelines.sessions import pipeline_session as session_module
from tradewind.spark.processes.spark_session import get_session

HEAD = "pipeline: p\ncheckpoint: state\n"
TABLES = "sources: {orders: {stream: O}}\nsinks: {show: {from: orders, console: {}}}\n"
SECRET = "abracadabra"


def load(section: str) -> Pipeline:
    return pipeline_of_text(f"{HEAD}spark:\n{section}\n{TABLES}")


def test_settings_are_given_to_the_session_as_texts() -> None:
    section = """\
  master: local[3]
  ui: 4050
  packages: ['org.apache.hadoop:hadoop-aws:3.5.0', 'a.b:c:1']
  conf: {spark.executor.memory: 2g, spark.executor.cores: 2, spark.speculation: true}
"""
    settings = load(section).head.spark
    assert settings.master == "local[3]"
    assert settings.session_settings() == {
        "spark.executor.memory": "2g",
        "spark.executor.cores": "2",
        "spark.speculation": "true",
        "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0,a.b:c:1",
        "spark.ui.enabled": "true",
        "spark.ui.port": "4050",
    }


@pytest.mark.parametrize(
    ("ui", "expected"),
    [
        ("", {"spark.ui.enabled": "false"}),
        ("ui: true", {"spark.ui.enabled": "true"}),
        ("ui: 1", {"spark.ui.enabled": "true", "spark.ui.port": "1"}),
    ],
)
def test_the_user_interface_is_off_unless_it_is_asked_for(ui: str, expected: object) -> None:
    assert load(f"  {ui or 'master: local'}").head.spark.session_settings() == expected


@pytest.mark.parametrize(
    ("section", "line", "message"),
    [
        ("  maser: x", 4, "key 'maser' does not exist; did you mean 'master'?"),
        ("  conf:\n    executor.memory: 1g", 5, "names are like spark.executor.memory"),
        ("  conf:\n    fs.s3a.endpoint: x", 5, "of Hadoop is spark.hadoop.fs.s3a.endpoint"),
        ("  conf:\n    spark.master: x", 5, "spark.master cannot be set here: set `master`"),
        ("  conf:\n    spark.ui.enabled: true", 5, "set `ui: true`"),
        ("  conf:\n    spark.sql.session.timeZone: CET", 5, "times are in UTC"),
        ("  conf:\n    spark.a: [1]", 4, "conf"),
        (f"  conf:\n    spark.a: {'x' * 10_001}", 5, "more than 10000 characters"),
        ("  packages: ['hadoop-aws']", 4, "group:name:version"),
        ("  packages: ['a:b:1, c:d:2']", 4, "group:name:version"),
        ("  ui: 0", 4, "0 is not a port"),
        ("  ui: 65536", 4, "65536 is not a port"),
        ("  ui: maybe", 4, "ui"),
    ],
)
def test_a_setting_that_is_none_or_not_for_a_file_is_named(
    section: str, line: int, message: str
) -> None:
    with pytest.raises(PipelineFileError) as caught:
        load(section)
    assert message in caught.value.text
    assert caught.value.line == line


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.ssl.keyPassword",
        "spark.hadoop.fs.azure.account.key.x",
        "spark.my.TOKEN",
        "spark.executorEnv.NATS_SEED",
    ],
)
def test_a_secret_is_in_no_text(name: str) -> None:
    pipeline = load(f"  conf: {{{name}: {SECRET}, spark.executor.memory: 1g}}")
    text = "\n".join(explain_lines(pipeline))
    assert SECRET not in text
    assert f"Spark: {name} = {HIDDEN}" in text
    assert "Spark: spark.executor.memory = 1g" in text
    for wrong in (f"{name}: [{SECRET}]", f"'{name} ': {SECRET}", f"x.{name}: {SECRET}"):
        with pytest.raises(PipelineFileError) as caught:
            load(f"  conf: {{{wrong}}}")
        assert SECRET not in str(caught.value)


class RunningSession:
    """A session whose settings for SQL can be changed, and no others."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.conf = self

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def isModifiable(self, name: str) -> bool:  # noqa: N802
        return name.startswith("spark.sql.")

    def set(self, name: str, value: str) -> None:
        self.values[name] = value


def test_a_session_that_runs_takes_what_it_can_and_refuses_the_rest() -> None:
    session = RunningSession()
    settings = {"spark.sql.shuffle.partitions": "3", "spark.ui.enabled": "false"}
    apply_settings(session, settings)  # type: ignore[arg-type]
    assert session.values == {"spark.sql.shuffle.partitions": "3"}
    with pytest.raises(PipelineError, match=r"spark\.x\.secret cannot be changed") as caught:
        apply_settings(session, {"spark.x.secret": SECRET})  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)


def test_a_task_on_this_machine_has_as_many_attempts_as_on_a_cluster() -> None:
    signatures = [inspect.signature(command) for command in (get_session, run_sql, run_demo)]
    masters = [signature.parameters["master"].default for signature in signatures]
    assert {*masters, DemoSettings(Path()).master} == {"local[*,4]"}


def test_a_pipeline_without_a_master_runs_on_this_machine_and_one_that_is_given_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    masters: list[str] = []

    def open_session(master: str, *_: Any) -> None:
        masters.append(master)

    monkeypatch.setattr(session_module, "open_session", open_session)
    monkeypatch.setattr(session_module, "check_sql_settings", lambda *_: None)
    monkeypatch.setattr(session_module, "apply_settings", lambda *_: None)
    for section, given in (("  ui: false", ""), ("  master: local[2]", ""), ("", "local[3]")):
        session_module.pipeline_session(load(section or "  {}"), given, tmp_path / "spark.log")
    assert masters == ["local[*,4]", "local[2]", "local[3]"]
