"""`tradewind table` without Spark, on both servers."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from cli_outcome import Cli
from harness import ServerProcess
from tradewind.api.times import parse_time
from tradewind.cli.frame.failures import EXIT_USAGE
from tradewind.pipelines.state.figure_types import LakeFigures
from tradewind.pipelines.tables.table_spec import TableSpec
from tradewind.pipelines.tables.table_status import (
    TableStatus,
    TierStatus,
    VerifiedMark,
    state_place,
    write_table_status,
)
from tradewind.sync import connect
from written_tables import RAW_SCHEMA, WrittenTable, spec_of


@pytest.fixture
def orders(js_server: ServerProcess, cli: Cli) -> None:
    """A stream with metadata of others, and a bucket; `cli` removes them."""
    assert cli
    with connect(js_server.url) as connection:
        manager = connection.jetstream_manager()
        manager.streams.add(name="ORDERS", subjects=["orders.>"], metadata={"team": "shop"})
        manager.streams.add(name="DEAD", subjects=["dead.>"])
        connection.jetstream().kv.create("PRICES")


@pytest.mark.usefixtures("orders")
def test_tables_are_added_listed_changed_and_removed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("table", "ls").out.startswith("No tables")
    added = cli(
        *("table", "add", "ORDERS", "--to", "lake", "--partition", "day, subject"),
        *("--every", "30s", "--dead-letters", "DEAD", "--catalog", "type=sql"),
        *("--catalog", "s3.secret-access-key=hidden"),
    )
    assert added.out == f"Table of ORDERS was added: iceberg in {tmp_path}/lake\n"
    assert (
        cli("table", "add", "--bucket", "PRICES", "--to", "/lake/p", "--format", "delta").code == 0
    )
    (prices, orders) = json.loads(cli("table", "ls", "--json").out)
    assert (prices["stream"], prices["rows"], prices["format"]) == ("KV_PRICES", "latest", "delta")
    assert (orders["to"], orders["partition"]) == (f"{tmp_path}/lake", ["day", "subject"])
    assert orders["catalog"] == {"type": "sql", "s3.secret-access-key": "(not shown)"}
    shown = cli("table", "ls").out
    assert "day, subject" in shown
    assert "hidden" not in shown
    metadata = json.loads(cli("stream", "info", "ORDERS", "--json").out)["config"]["metadata"]
    assert metadata["team"] == "shop"
    assert cli("table", "add", "ORDERS", "--to", "other").code != 0, "a change is asked for"
    changed = cli("table", "add", "ORDERS", "--to", "other", "--format", "parquet", "--force")
    assert "was changed: parquet" in changed.out
    assert cli("table", "rm", "ORDERS").code != 0
    assert "files are kept" in cli("table", "rm", "ORDERS", "--force").out
    assert cli("table", "rm", "KV_PRICES", "--force").code == 0
    assert json.loads(cli("table", "ls", "--json").out) == []
    metadata = json.loads(cli("stream", "info", "ORDERS", "--json").out)["config"]["metadata"]
    assert metadata["team"] == "shop"
    assert "tradewind.table" not in metadata


@pytest.mark.usefixtures("orders")
def test_the_status_is_what_the_runner_wrote(cli: Cli, tmp_path: Path) -> None:
    assert cli("table", "add", "ORDERS", "--to", str(tmp_path), "--format", "parquet").code == 0
    assert "has not run yet" in cli("table", "status").out
    spec = TableSpec(str(tmp_path), format="parquet")
    status = TableStatus(
        *("ORDERS", str(tmp_path), "parquet", "failed", 1, "elsewhere", 5, 4),
        figures=LakeFigures(1234, 2, 2048, "7", 6),
        behind_messages=1500,
        behind_seconds=12.4,
        rescued=3,
        error="the disk is full",
    )
    write_table_status(state_place("ORDERS", spec), status)
    shown = cli("table", "status").out
    for text in ("1,234", "1,500 messages, 12 s", "the disk is full", "failed"):
        assert text in shown
    assert "1,500 messages" in cli("table", "status", "--watch").out
    (found,) = json.loads(cli("table", "status", "ORDERS", "--json").out)
    assert (found["figures"]["rows"], found["is_alive"]) == (1234, True)
    assert "the disk is full" in cli("table", "info", "ORDERS").out
    info = json.loads(cli("table", "info", "ORDERS", "--json").out)
    assert info["status"]["rescued"] == 3
    assert info["figures"]["rows"] == 0
    dropped = cli("table", "rm", "ORDERS", "--drop", "--force")
    assert dropped.code == 0
    assert not any(tmp_path.rglob("table.json"))


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["NONE", "--to", "/lake"], "stream 'NONE' does not exist"),
        (["ORDERS", "--to", "/lake", "--dead-letters", "DEATH"], "did you mean 'DEAD'?"),
        (["ORDERS"], "--to FOLDER"),
        (["--to", "/lake"], "specify a stream or --bucket NAME"),
        (["ORDERS", "--to", "/lake", "--format", "csv"], "--format: invalid enum value 'csv'"),
        (["ORDERS", "--to", "/lake", "--rows", "latest"], "--rows: latest is for buckets"),
        (["ORDERS", "--to", "/lake", "--every", "x"], "--every: 'x' is not a duration"),
        (["ORDERS", "--to", "/lake", "--catalog", "x"], "is not KEY=VALUE"),
        (["ORDERS", "--to", "/lake", "--payload", "morse"], "'morse'"),
        (["ORDERS", "--to", "/lake", "--tier", "--tier-limit", "x"], "--tier-limit 'x' is not KEY"),
        (
            ["ORDERS", "--to", "/lake", "--tier", "--tier-limit", "max_age=old"],
            "--tier-limit: max_age: 'old' is not a duration",
        ),
        (["--bucket", "PRICES", "--to", "/lake", "--tier"], "--tier: one row per key"),
    ],
)
def test_wrong_tables_are_refused_in_one_line(cli: Cli, words: list[str], problem: str) -> None:
    outcome = cli("table", "add", *words)
    assert outcome.code != 0
    assert problem in outcome.err
    assert "Traceback" not in outcome.err
    assert json.loads(cli("table", "ls", "--json").out) == []


@pytest.mark.usefixtures("orders")
def test_a_tier_is_verified_and_its_protection_is_told(
    cli: Cli, js_server: ServerProcess, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    words = ("--to", str(tmp_path), "--format", "delta", "--schema", "raw", "--tier")
    added = cli("table", "add", "ORDERS", *words, "--tier-limit", "max_msgs=1000")
    assert (added.code, "not protected" in added.err) == (0, False)
    assert cli("stream", "edit", "ORDERS", "--max-age", "1h", "--force").code == 0
    again = cli("table", "add", "ORDERS", *words, "--tier-limit", "max_msgs=1000")
    assert "not protected: max_age 1h0m0s of the stream" in again.err
    assert "nothing was written yet" in cli("table", "verify", "ORDERS").err
    with connect(js_server.url) as connection:
        js = connection.jetstream()
        for number in range(3):
            js.publish("orders.1", b"%d" % number)
        streams = connection.jetstream_manager().streams
        info = streams.info("ORDERS")
        times = [streams.get_message("ORDERS", seq=seq).time for seq in (1, 2, 3)]
    spec = spec_of(tmp_path, "delta")
    table = WrittenTable(
        msgspec.structs.replace(spec, to=str(tmp_path)), "ORDERS", parse_time(info.created)
    )
    rows = {
        "seq": [1, 2, 3],
        "subject": ["orders.1"] * 3,
        "time": times,
        "headers": [None] * 3,
        "data": [b"0", b"1", b"2"],
    }
    table.add(pa.table(rows, RAW_SCHEMA).slice(0, 2), 2)
    assert "2 messages up to sequence 2 were compared" in cli("table", "verify").out
    table.add(pa.table(rows | {"data": [b"0", b"1", b"other"]}, RAW_SCHEMA).slice(2), 3)
    wrong = cli("table", "verify", "ORDERS")
    assert wrong.code != 0
    assert "does NOT match its stream" in wrong.out
    assert "column data of sequence 3" in wrong.out
    report = json.loads(cli("table", "verify", "--json").out)["ORDERS"]
    assert report["is_same"] is False
    status = TableStatus(
        *("ORDERS", str(tmp_path), "delta", "running", 1, "elsewhere", 5, 4),
        tier=TierStatus(VerifiedMark(1, 2, 3, compared=1234), ["max_age 1h0m0s"]),
    )
    write_table_status(
        state_place("ORDERS", msgspec.structs.replace(spec, to=str(tmp_path))), status
    )
    shown = cli("table", "info", "ORDERS").out
    for text in ("no: max_age 1h0m0s", "1,234", "Tier Limit max_msgs"):
        assert text in shown


def test_what_has_no_table_is_named(cli: Cli) -> None:
    assert "does not exist" in cli("table", "info", "NONE").err
    assert "has no table" in cli("table", "status", "NONE").err


def test_settings_of_spark_are_checked_before_it_starts(offline: Cli) -> None:
    outcome = offline("table", "run", "--conf", "spark.master=local")
    assert (outcome.code, "cannot be set here" in outcome.err) == (EXIT_USAGE, True)
    outcome = offline("table", "run", "--conf", "password")
    assert (outcome.code, "spark.NAME=VALUE" in outcome.err) == (EXIT_USAGE, True)
