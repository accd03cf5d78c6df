"""`tradewind pipeline`, `sql` and `job` as far as they need no Spark."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.cli.main import run
from tradewind.pipelines.state.leases import locked
from tradewind.pipelines.state.status import PipelineStatus, QueryStatus, write_status
from tradewind.spark.progress.stream_lag import StreamLag

GOOD = """\
pipeline: copy
checkpoint: state
sources:
  orders: {stream: ORDERS}
sinks:
  lake: {from: orders, parquet: lake}
"""
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in list(os.environ):
        if name.startswith("NATS_"):
            monkeypatch.delenv(name)

    def call(*words: str) -> tuple[int, str, str]:
        code = run(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(GOOD)
    return path


def test_check_says_what_is_right_and_what_is_not(cli: Cli, file: Path) -> None:
    code, out, _ = cli("pipeline", "check", str(file), "--offline", "--no-spark")
    assert code == 0
    assert out == f"{file}: right (file): 1 sources, 0 steps, 1 sinks\n"
    file.write_text(GOOD.replace("from: orders", "from: odrers"))
    code, _, err = cli("pipeline", "check", str(file), "--offline", "--no-spark")
    assert code == 1
    assert f"{file}:6: table 'odrers' does not exist; did you mean 'orders'?" in err


def test_check_fails_if_a_server_cannot_be_asked(cli: Cli, file: Path) -> None:
    words = ("-s", "nats://127.0.0.1:1", "pipeline", "check", str(file), "--no-spark")
    code, out, err = cli(*words)
    assert (code, out) == (1, "")
    assert "line 4: orders is not checked: cannot connect" in err
    assert "--offline leaves servers out" in err
    assert cli(*words, "--offline")[0] == 0


def test_check_finds_misspelt_types_without_spark(cli: Cli, file: Path) -> None:
    payload = "stream: ORDERS, payload: {schema: {id: bigit}}"
    file.write_text(GOOD.replace("stream: ORDERS", payload))
    code, _, err = cli("pipeline", "check", str(file), "--offline", "--no-spark")
    assert code == 1
    assert f"{file}:4: type 'bigit' does not exist; did you mean 'bigint'?" in err


def test_pipelines_of_one_run_have_different_names_and_one_master(cli: Cli, file: Path) -> None:
    other = file.with_name("q.yaml")
    other.write_text(GOOD)
    code, _, err = cli("pipeline", "run", str(file), str(other))
    assert code == 1
    assert f"{other}:1: {file} has the name 'copy' too" in err
    file.write_text(GOOD + "spark: {master: local}\n")
    other.write_text(GOOD.replace("copy", "other") + "spark: {master: 'local[3]'}\n")
    code, _, err = cli("pipeline", "run", str(file), str(other))
    assert code == 1
    assert f"{other}:7: {file} has another master, local; give one for all with --master" in err


def test_the_tests_of_a_file_are_found_before_spark_is_started(cli: Cli, file: Path) -> None:
    code, _, err = cli("pipeline", "test", str(file))
    assert code == 1
    assert "there are no tests: add a section `tests`, or a file p_test.yaml" in err
    beside = file.with_name("p_test.yaml")
    beside.write_text("tests:\n  one: {given: {order: []}, expect: {lake: []}}\n")
    code, _, err = cli("pipeline", "test", str(file))
    assert f"{beside}:2: source 'order' does not exist; did you mean 'orders'?" in err
    beside.write_text("tests:\n  one: {expect: {lake: []}}\n")
    assert (
        "test 'on' does not exist; did you mean 'one'?"
        in cli("pipeline", "test", str(file), "--only", "on")[2]
    )
    beside.write_text("sinks: {}\n")
    assert (
        f"{beside}:1: 'sinks' is not for a file of tests" in cli("pipeline", "test", str(file))[2]
    )


def test_explain_is_in_words(cli: Cli, file: Path) -> None:
    code, out, _ = cli("pipeline", "explain", str(file), "--no-spark")
    assert code == 0
    assert "orders: stream ORDERS; followed" in out
    assert "lake: append to parquet lake; from orders (of orders)" in out


def test_status_shows_rows_and_lag(cli: Cli, file: Path) -> None:
    code, _, err = cli("pipeline", "status", str(file))
    assert code == 1
    assert "has not run yet" in err
    assert f"tradewind pipeline run {file}" in err
    lag = StreamLag("ORDERS", 5, 12, 7, 1.5)
    query = QueryStatus("lake", "parquet lake", rows=5, rows_total=1234, lags=[lag])
    status = PipelineStatus(
        "copy", str(file), "running", os.getpid(), os.uname().nodename, "local[2]", 1, 2, [query]
    )
    (file.parent / "state").mkdir()
    write_status(file.parent / "state", status)
    code, out, _ = cli("pipeline", "status", str(file))
    assert code == 0
    for shown in ("pipeline copy: running", "1,234", "ORDERS", " 7 ", "1.5 s"):
        assert shown in out
    # A process of that number cannot exist.
    status.pid = 1 << 30
    write_status(file.parent / "state", status)
    assert "gone (process 1073741824 no longer exists)" in cli("pipeline", "status", str(file))[1]
    code, out, _ = cli("pipeline", "status", str(file), "--json")
    assert code == 0
    assert '"messages": 7' in out


def test_batches_are_shown_with_their_sequences(cli: Cli, file: Path) -> None:
    code, _, err = cli("pipeline", "batches", str(file))
    assert code == 1
    assert "has not read from any stream yet" in err
    query = file.parent / "state" / "queries" / "lake"
    for name in ("offsets", "commits"):
        (query / name).mkdir(parents=True)
    offset = '{"ORDERS": {"created_ns": 5, "seq": 42, "after": 7, "parts": 1}}'
    (query / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1794816000000}\n' + offset)
    (query / "commits" / "0").write_text("v1\n{}")
    code, out, _ = cli("pipeline", "batches", str(file))
    assert code == 0
    for shown in ("lake", "ORDERS", " 8 ", " 42 ", "2026-11-16 08:00:00", "committed"):
        assert shown in out
    code, out, _ = cli("pipeline", "batches", str(file), "--json")
    assert code == 0
    assert json.loads(out) == [
        {
            "query": "lake",
            "batch": 0,
            "source": 0,
            "stream": "ORDERS",
            "first_seq": 8,
            "last_seq": 42,
            "planned_at": "2026-11-16T08:00:00Z",
            "state": "committed",
        }
    ]
    (query / "offsets" / "0").write_text("v9\n")
    code, _, err = cli("pipeline", "batches", str(file))
    assert code == 1
    assert "line 1: 'v9' is not v1" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sql", "select 1", "--csv", "--chart"], "use only one of --csv, --json and --chart"),
        (["sql", "select 1", "--table", "lake"], "NAME=FOLDER"),
        (["job", "compact", "ORDERS"], "specify either --to FOLDER or --to-stream NAME"),
        (["job", "replay", "x", "ORDERS", "--pace", "slow"], "instant or original"),
        (
            ["--inbox-prefix", "x", "pipeline", "check", "FILE"],
            "--inbox-prefix is not passed on to Spark's workers",
        ),
        (["pipeline", "chekc", "x"], "did you mean 'check'?"),
    ],
)
def test_wrong_arguments_say_what_would_be_right(
    cli: Cli, file: Path, words: list[str], message: str
) -> None:
    code, _, err = cli(*(str(file) if word == "FILE" else word for word in words))
    assert code in (1, 2)
    assert message in err


def test_compact_says_what_became_of_the_files(cli: Cli, file: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    pa = pytest.importorskip("pyarrow")
    code, _, err = cli("pipeline", "compact", str(file))
    assert code == 1
    assert "copy has no such sink: small files cannot be compacted" in err
    file.write_text(GOOD.replace("parquet: lake", "delta: lake"))
    code, _, err = cli("pipeline", "compact", str(file), "--sink", "lak")
    assert code == 1
    assert "sink 'lak' does not exist; did you mean 'lake'?" in err
    assert "does not exist yet" in cli("pipeline", "compact", str(file))[2]
    for number in range(3):
        table = pa.table({"id": [number]})
        deltalake.write_deltalake(str(file.parent / "lake"), table, mode="append")
    code, out, _ = cli("pipeline", "compact", str(file))
    assert code == 0
    first, figures = out.splitlines()
    assert first == "lake: 3 files became 1; 0 orphaned files were removed"
    assert re.fullmatch(
        r"  3 rows, \d+ B in 1 file of \d+ B on average, 1 of them small; 4 snapshots", figures
    )
    # A checkpoint of the log has to be there for a while before what is older goes.
    for _ in range(2):
        arguments = ["--expire", "1ms", "--keep-snapshots", "2", "--max-seconds", "60", "--json"]
        code, out, _ = cli("pipeline", "compact", str(file), *arguments)
        assert code == 0
        then = time.time() - 120
        for path in (file.parent / "lake" / "_delta_log").iterdir():
            os.utime(path, (then, then))
    (report,) = json.loads(out)
    assert (report["snapshots_expired"], report["figures"]["snapshots"]) == (2, 2)
    assert report["figures"]["rows"] == 3
    code, _, err = cli("pipeline", "compact", str(file), "--expire", "-1")
    assert code == 2
    assert "--expire: '-1' is not longer than 0; use 12h or 7d" in err
    with locked(file.parent / "state"):
        code, _, err = cli("pipeline", "compact", str(file), "--orphan-hours", "23")
        assert code == 1
        assert "the pipeline is already running" in err
        assert cli("pipeline", "compact", str(file), "--orphan-hours", "24")[0] == 0
