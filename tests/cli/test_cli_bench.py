"""`tradewind bench`: every benchmark runs on both servers, and counts right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_outcome import Cli
from tradewind.cli.bench.bench_report import BenchReport
from tradewind.cli.bench.bench_run import BenchPlan, Share, make_shares, run_shares
from tradewind.errors import ConfigError

WAIT_SECONDS = 60


def figures(cli: Cli, *args: str) -> dict[str, Any]:
    document = cli("bench", *args, "--json").ok().json
    assert document["seconds"] > 0
    assert document["messages_per_second"] > 0
    return dict(document)


def test_core_publishers_share_the_messages(cli: Cli) -> None:
    got = figures(cli, "pub", "x", "--msgs", "1001", "--clients", "3", "--size", "16")
    assert (got["messages"], got["bytes"]) == (1001, 16016)
    assert [each["messages"] for each in got["clients"]] == [334, 334, 333]


def test_the_report_is_readable_and_without_codes_in_a_pipe(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "figures.csv"
    outcome = cli("bench", "pub", "x", "--msgs", "100", "--clients", "2", "--csv", str(file)).ok()
    first, _, *rest = outcome.out.splitlines()
    assert first.startswith("NATS Core NATS publisher stats: ")
    assert " msgs/sec ~ " in first
    assert rest[0].startswith(" [1] ")
    assert rest[0].endswith("(50 msgs)")
    assert "message rates min" in rest[-1]
    assert "\x1b" not in outcome.out + outcome.err
    header, *rows = file.read_text().splitlines()
    assert header.startswith("#RunID,ClientID,MsgCount")
    assert [row.split(",")[2] for row in rows] == ["50", "50"]


def test_a_subscriber_counts_what_another_process_publishes(cli: Cli) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tradewind.cli", "bench", "sub", "b", "--msgs", "500"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stderr is not None
        assert any("Listening on b" in line for line in process.stderr)
        figures(cli, "pub", "b", "--msgs", "500")
        out, _ = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0
        assert out.startswith("NATS Core NATS subscriber stats: ")
    finally:
        process.kill()
        process.communicate()


def test_requests_are_timed_and_a_server_reports_at_the_end(cli: Cli) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tradewind.cli", "bench", "service", "serve", "svc"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stderr is not None
        assert any("Listening on svc" in line for line in process.stderr)
        outcome = cli("bench", "service", "request", "svc", "--msgs", "50").ok()
        assert "Latency: min " in outcome.out
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0
        assert out.startswith("NATS Service server stats: ")
    finally:
        process.kill()
        process.communicate()


def test_streams_are_written_and_read_in_every_way(cli: Cli) -> None:
    memory = ("--create", "--storage", "memory", "--maxbytes", "10MB")
    got = figures(cli, "js", "pub", "async", "b.x", "--msgs", "1000", "--batch", "50", *memory)
    assert got["messages"] == 1000
    assert got["latency"]["count"] == 16
    got = figures(cli, "js", "pub", "sync", "b.x", "--msgs", "20", "--dedup")
    assert got["latency"]["count"] == 20
    info = cli("stream", "info", "benchstream", "--json").ok().json
    assert info["state"]["messages"] == 1020
    for args in (
        ("js", "fetch", "--batch", "100", "--clients", "2"),
        ("js", "consume", "--doubleack"),
        ("js", "consume", "--acks", "none"),
        ("js", "ordered"),
        ("js", "get", "batch", "--batch", "100"),
        ("js", "get", "sync"),
    ):
        got = figures(cli, *args, "--msgs", "1000")
        assert (got["messages"], got["bytes"]) == (1000, 128_000)
    purged = figures(cli, "js", "pub", "sync", "b.x", "--msgs", "5", "--purge")
    assert purged["messages"] == 5
    info = cli("stream", "info", "benchstream", "--json").ok().json
    assert info["state"]["messages"] == 5


def test_atomic_batches(cli: Cli) -> None:
    outcome = cli(
        *("bench", "js", "pub", "atomic", "b.x", "--msgs", "25", "--batch", "10", "--json"),
        *("--create", "--storage", "memory"),
    )
    assert outcome.ok().json["latency"]["count"] == 3
    info = cli("stream", "info", "benchstream", "--json").ok().json
    assert info["state"]["messages"] == 25


def test_buckets(cli: Cli) -> None:
    got = figures(cli, "kv", "put", "--msgs", "100", "--clients", "2", "--storage", "memory")
    assert got["messages"] == 100
    assert len(cli("kv", "ls", "benchbucket").ok().out.split()) == 100
    assert figures(cli, "kv", "get", "--msgs", "100")["messages"] == 100
    assert figures(cli, "kv", "get", "--msgs", "200", "--randomize", "10")["messages"] == 200
    missing = cli("bench", "kv", "get", "--msgs", "101")
    assert missing.code == 1
    assert "bench kv put" in missing.err


def test_a_duration_ends_it(cli: Cli) -> None:
    got = figures(cli, "pub", "x", "--duration", "200ms", "--throughput", "500")
    assert 1 <= got["messages"] <= 200


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("pub", "x", "--msgs", "0"), "--msgs"),
        (("pub", "x", "--clients", "0"), "--clients"),
        (("pub", "x", "--msgs", "1", "--clients", "2"), "at least one for each"),
        (("pub", "x", "--size", "huge"), "--size"),
        (("js", "fetch", "--acks", "maybe"), "--acks"),
        (("js", "fetch", "--batch", "0"), "--batch"),
        (("js", "fetch"), "stream 'benchstream' does not exist"),
        (("kv", "get"), "bucket 'benchbucket' does not exist"),
    ],
)
def test_what_cannot_be_run_is_explained(cli: Cli, args: tuple[str, ...], text: str) -> None:
    outcome = cli("bench", *args)
    assert outcome.code in (1, 2)
    assert text in outcome.err


def test_too_few_messages_are_said_before_it_begins(cli: Cli) -> None:
    make = ("bench", "js", "pub", "sync", "b", "--msgs", "3", "--create", "--storage", "memory")
    cli(*make).ok()
    outcome = cli("bench", "js", "consume", "--msgs", "10")
    assert outcome.code == 1
    assert "has 3 messages for consumer" in outcome.err
    assert "--msgs 3" in outcome.err


@given(st.integers(1, 10_000), st.integers(1, 50))
def test_shares_add_up(messages: int, clients: int) -> None:
    if clients > messages:
        with pytest.raises(ConfigError):
            BenchPlan(messages=messages, clients=clients)
        return
    shares = make_shares(BenchPlan(messages=messages, clients=clients))
    assert sum(share.count for share in shares) == messages
    assert max(share.count for share in shares) - min(share.count for share in shares) <= 1


async def test_a_failing_client_stops_the_others() -> None:
    import asyncio

    stopped = asyncio.Event()

    async def fails(_: Share) -> None:
        raise ConfigError("broken")

    async def waits(_: Share) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    shares = make_shares(BenchPlan(messages=2, clients=2))
    with pytest.raises(ConfigError, match="broken"):
        await run_shares(shares, [waits, fails])
    assert stopped.is_set()


def test_the_total_spans_all_clients() -> None:
    plan = BenchPlan(messages=30, clients=2, size_bytes=10)
    first, second = make_shares(plan)
    first.started_ns, first.ended_ns, first.done_count, first.done_bytes = 10**9, 2 * 10**9, 10, 100
    second.started_ns, second.ended_ns = 2 * 10**9, 4 * 10**9
    second.done_count, second.done_bytes = 20, 200
    report = BenchReport("x", [first, second])
    assert (report.total.per_second, report.total.bytes_per_second) == (10, 100)
    assert [rate.per_second for rate in report.clients] == [10, 10]
