"""`tradewind server`, against both servers with a system account."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_outcome import Cli, Outcome
from harness import ServerProcess, wait_for
from ports import free_port
from tradewind.sync import connect

WAIT_SECONDS = 60


@pytest.fixture(scope="module", params=["official", "tradewind"])
def system_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("system")
    config = folder / "server.conf"
    config.write_text(
        'server_name: one\nlisten: "127.0.0.1:-1"\n'
        "accounts { SYS { users: [{user: sys, password: s}] }\n"
        "  A { jetstream: enabled, users: [{user: a, password: a}] } }\n"
        f'system_account: SYS\nno_auth_user: a\njetstream {{ store_dir: "{folder}" }}\n'
    )
    process = ServerProcess(str(request.param), ["-c", str(config)])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


@pytest.fixture
def user(system_server: ServerProcess, offline: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands as an ordinary user."""
    monkeypatch.setenv("NATS_URL", f"nats://127.0.0.1:{system_server.port}")
    return offline


@pytest.fixture
def admin(user: Cli) -> Cli:
    """Commands as the user of the system account."""

    def call(*args: str) -> Outcome:
        return user(*args, "--user", "sys", "--password", "s")

    return call


def test_list_shows_the_server(admin: Cli) -> None:
    outcome = admin("server", "ls", "--wide").ok()
    assert "Server Overview" in outcome.out
    assert re.search(r"│ one +│ +│ 127\.0\.0\.1 │ 2\.15\.\d+ +│ yes +│", outcome.out)
    document = admin("server", "list", "--json").ok().json
    assert document[0]["server"]["name"] == "one"
    assert document[0]["statsz"]["connections"] >= 1


def test_list_and_ping_fail_if_servers_are_missing(admin: Cli) -> None:
    for command in ("list", "ping"):
        outcome = admin("server", command, "2")
        assert outcome.code == 1
        assert "Missing 1 server(s)" in outcome.out
        admin("server", command, "1").ok()


def test_ping_shows_times(admin: Cli) -> None:
    outcome = admin("server", "ping", "--id").ok()
    assert re.match(r"N[A-Z0-9]{55} one +rtt=", outcome.out)
    assert "1 replies max: " in outcome.out


def test_info_shows_one_server(admin: Cli) -> None:
    for name in ((), ("one",)):
        outcome = admin("server", "info", *name).ok()
        assert "Server information for one (N" in outcome.out
        for section in ("Process Details:", "JetStream:", "Limits:", "Statistics:"):
            assert section in outcome.out
        assert "Max Payload: 1.0 MiB" in outcome.out
    assert admin("srv", "info", "--json").ok().json["server_name"] == "one"
    wrong = admin("server", "info", "onw")
    assert wrong.code == 1
    assert "did you mean 'one'?" in wrong.err


def test_an_ordinary_user_is_told_what_is_missing(user: Cli) -> None:
    for command in (("ls",), ("ping",), ("info",), ("report", "cpu"), ("request", "varz")):
        outcome = user("server", *command)
        assert outcome.code == 1
        assert "only a user of the system account" in outcome.err


def connections_by_account(admin: Cli) -> dict[str, int]:
    accounts = admin("server", "report", "accounts", "--json").ok().json
    return {each["account"]: each["connections"] for each in accounts}


def test_reports_are_tables_over_all_servers(admin: Cli, system_server: ServerProcess) -> None:
    with connect(f"nats://127.0.0.1:{system_server.port}", name="worker") as connection:
        connection.subscribe("x")
        connection.flush()
        # A server notices a little later that those of the commands before have gone.
        wait_for(lambda: connections_by_account(admin) == {"A": 1, "SYS": 1})
        table = admin("server", "report", "connections", "--wide").ok().out
        assert re.search(r"│ worker +│ one +│", table)
        documents = admin("server", "report", "conns", "1", "--account", "A", "--json").ok().json
        assert [(each["name"], each["account"]) for each in documents] == [("worker", "A")]
    assert "JetStream Summary" in admin("server", "report", "jetstream").ok().out
    assert "Memory Usage per server" in admin("server", "report", "mem").ok().out
    assert list(admin("server", "report", "cpu", "--json").ok().json) == ["one"]
    assert "│ ok " in admin("server", "report", "health").ok().out
    assert admin("server", "report", "routes").ok().out == "No routes\n"
    wrong = admin("server", "report", "conns", "--sort", "size")
    assert wrong.code == 2
    assert "in-bytes" in wrong.err


@pytest.mark.parametrize(
    ("command", "member"),
    [
        ("variables", "server_id"),
        ("connections", "num_connections"),
        ("subscriptions", "num_subscriptions"),
        ("jetstream", "streams"),
        ("jetstream-health", "status"),
        ("accounts", "accounts"),
        ("routes", "num_routes"),
    ],
)
def test_requests_print_what_servers_answer(admin: Cli, command: str, member: str) -> None:
    for name in ((), ("--name", "one")):
        document = admin("server", "request", command, *name).ok().json
        assert document["server"]["name"] == "one"
        assert member in document["data"]


def test_check_connection(user: Cli, tmp_path: Path) -> None:
    slow = ("--connect-warn", "50s", "--connect-critical", "60s", "--rtt-warn", "50s")
    slow += ("--rtt-critical", "60s", "--req-warn", "50s", "--req-critical", "60s")
    outcome = user("server", "check", "connection", *slow).ok()
    assert outcome.out.startswith("OK Connection OK:connected to nats://127.0.0.1:")
    assert re.search(r"\| connect_time=[0-9.]+s;50\.0000;60\.0000 rtt=", outcome.out)
    file = tmp_path / "out"
    user("server", "check", "conn", *slow, "--outfile", str(file), "--format", "json").ok()
    assert json.loads(file.read_text())["status"] == "OK"
    failed = user("server", "check", "conn", "--connect-critical", "1ns")
    assert failed.code == 2
    assert failed.out.startswith("CRITICAL Connection Crit:connected")
    assert user("server", "check", "conn", "--format", "yaml").code == 2


def test_check_of_a_server_that_is_not_there_is_critical(offline: Cli) -> None:
    with socket.socket() as taken:  # nobody listens here, and nobody else can either
        taken.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"
        outcome = offline("server", "check", "connection", "-s", url)
    assert outcome.code == 2
    assert outcome.out.startswith("CRITICAL Connection Crit:cannot connect")
    assert outcome.err == ""


def test_checks_of_a_stream_and_its_consumer(user: Cli, system_server: ServerProcess) -> None:
    with connect(f"nats://127.0.0.1:{system_server.port}") as connection:
        manager = connection.jetstream_manager()
        manager.streams.add(name="S", subjects=["s.*"], storage="memory")
        try:
            for _ in range(3):
                connection.jetstream().publish("s.1", b"1")
            # Behind the messages: nats-server tells a consumer of a new one when it has time.
            manager.consumers.add("S", durable_name="C", ack_policy="explicit")
            check = ("server", "check")
            assert "OK:3 messages" in user(*check, "stream", "--stream", "S").ok().out
            few = user(*check, "stream", "--stream", "S", "--msgs-warn", "3")
            assert few.code == 1
            assert few.out.startswith("WARNING S Warn:3 messages")
            assert user(*check, "stream", "--stream", "S", "--min-sources", "1").code == 2
            assert user(*check, "stream", "--stream", "NONE").code == 2
            consumer = (*check, "consumer", "--stream", "S", "--consumer", "C")
            user(*consumer, "--unprocessed-critical", "4").ok()
            assert user(*consumer, "--unprocessed-critical", "3").code == 2
            assert "no last delivery" in user(*consumer, "--last-delivery-critical", "1h").out
            message = (*check, "message", "--stream", "S", "--subject", "s.1")
            user(*message, "--age-critical", "1h", "--content", "^1$").ok()
            assert user(*message, "--content", "2").code == 2
            assert user(*message, "--content", "(").code == 3
            assert user(*message, "--age-critical", "1h", "--body-timestamp").code == 2
            assert user(*check, "jetstream").ok().out.startswith("OK JetStream OK:")
        finally:
            manager.streams.delete("S")


def test_check_of_a_bucket(user: Cli) -> None:
    user("kv", "add", "B", "--storage", "memory").ok()
    user("kv", "put", "B", "k", "v").ok()
    check = ("server", "check", "kv", "--bucket", "B")
    assert "OK:key k found" in user(*check, "--key", "k", "--values-critical", "2").ok().out
    assert user(*check, "--key", "other").code == 2
    assert user(*check, "--values-critical", "1").code == 2
    user("kv", "del", "B", "-f").ok()
    assert user(*check).code == 2


def test_check_of_a_service(user: Cli, system_server: ServerProcess) -> None:
    assert user("server", "check", "request", "--subject", "svc").code == 2
    with connect(f"nats://127.0.0.1:{system_server.port}") as connection:
        connection.subscribe("svc", callback=lambda message: message.respond(b"all is well"))
        connection.flush()
        check = ("server", "check", "request", "--subject", "svc", "--payload", "how are you")
        user(*check, "--match-payload", "well", "--response-critical", "60s").ok()
        assert user(*check, "--match-payload", "bad").code == 2


def test_check_of_a_server_by_name(admin: Cli) -> None:
    check = ("server", "check", "server", "--name", "one")
    outcome = admin(*check, "--js-required", "--conn-critical", "1000").ok()
    assert "OK:JetStream enabled" in outcome.out
    young = admin(*check, "--uptime-critical", "100h")
    assert young.code == 2
    assert admin(*check, "--tls-required").code == 2
    assert admin("server", "check", "server", "--name", "two").code == 2


def test_run_starts_a_server_with_contexts(tmp_path: Path, offline: Cli) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tradewind.cli", "server", "run", "dev", "-p", str(port), "--clean"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")},
    )
    try:
        assert process.stdout is not None
        started = []
        for line in process.stdout:
            started.append(line)
            if "Server is ready" in line:
                break
        else:
            raise AssertionError("".join(started))
        assert any("System Context: nats_dev_system" in line for line in started)
        listed = offline("server", "ls", "--context", "nats_dev_system", "--json").ok().json
        assert [each["server"]["name"] for each in listed] == ["dev"]
        offline("kv", "add", "B", "--context", "nats_dev").ok()
        offline("pub", "x", "y", "-s", f"nats://127.0.0.1:{port}").ok()  # without a login
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0
        assert offline("ctx", "ls").ok().out == "No known contexts\n"
        assert (tmp_path / "data" / "tradewind" / "dev" / "jetstream").is_dir()
    finally:
        process.kill()
        process.communicate()


def test_run_refuses_a_name_that_is_no_file_name(offline: Cli) -> None:
    outcome = offline("server", "run", "../x")
    assert outcome.code == 2
    assert "letters, digits" in outcome.err
