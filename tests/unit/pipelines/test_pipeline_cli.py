"""`tradewind pipeline`, `sql` and `job` as far as they need no Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.cli.main import run
from tradewind.pipelines.leases import locked
from tradewind.pipelines.status import PipelineStatus, QueryStatus, write_status
from tradewind.spark.stream_lag import StreamLag

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


def test_check_goes_on_without_a_server(cli: Cli, file: Path) -> None:
    code, _, err = cli("-s", "nats://127.0.0.1:1", "pipeline", "check", str(file), "--no-spark")
    assert code == 0
    assert "line 4: orders is not checked: cannot connect" in err


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
    assert out == "lake: 3 files became 1; 0 orphaned files were removed\n"
    with locked(file.parent / "state"):
        code, _, err = cli("pipeline", "compact", str(file), "--orphan-hours", "23")
        assert code == 1
        assert "the pipeline is already running" in err
        assert cli("pipeline", "compact", str(file), "--orphan-hours", "24")[0] == 0
