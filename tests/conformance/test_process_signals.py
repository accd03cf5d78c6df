"""Signals: orderly stop, reload, lame duck, and the --signal flag that sends them."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from helpers_ops import (
    VIOLATION,
    config_path,
    connect_line,
    login,
    open_client,
    publish,
    refusal,
    reload,
    reload_outcome,
    replies,
    run_once,
)

from harness import RawClient, ServerProcess, StartServer, wait_for

FRESH_PROCESSES = True
USERS = "authorization {{ users: [ {{user: anna, password: {anna}}}{more} ] }}\n"
ANNA = USERS.format(anna="a", more="")
ANNA_AND_BERT = USERS.format(anna="a", more=", {user: bert, password: b}")


def rest(client: RawClient) -> bytes:
    """What is still to come until the end, without INFO lines and PINGs."""
    lines = client.read_to_end().split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.startswith((b"INFO ", b"PING")))


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "interrupt"), (signal.SIGTERM, "terminated")]
)
def test_stop_is_orderly(start: StartServer, number: signal.Signals, name: str) -> None:
    server = start()
    with login(server) as client, open_client(server) as fresh:
        server.signal(number)
        assert server.wait() == 0
        assert rest(client) == b""
        assert rest(fresh) == b""
    server.wait_for_log(rf'\[INF\] Trapped "{name}" signal')
    server.wait_for_log(r"\[INF\] Initiating Shutdown\.\.\.")
    assert server.lines[-1].endswith("[INF] Server Exiting..")


# Reload


def test_reload_is_logged(start: StartServer) -> None:
    server = start(ANNA)
    outcome = reload(server, ANNA_AND_BERT)
    assert re.search(r"\[INF\] Reloaded server configuration", outcome)
    server.wait_for_log(r'\[INF\] Trapped "hangup" signal')


def test_added_user_can_log_in(start: StartServer) -> None:
    server = start(ANNA)
    assert refusal(server, connect_line("bert", "b")) == VIOLATION
    reload(server, ANNA_AND_BERT)
    login(server, "bert", "b").close()


def test_removed_user_is_disconnected_and_others_stay(start: StartServer) -> None:
    server = start(ANNA_AND_BERT)
    with login(server, "anna", "a") as stays, login(server, "bert", "b") as goes:
        assert replies(stays, "SUB kept 1\r\n") == []
        reload(server, ANNA)
        assert rest(goes) in (b"", VIOLATION)
        assert replies(stays, publish("kept", "x")) == [b"MSG kept 1 1", b"x"]
    assert refusal(server, connect_line("bert", "b")) == VIOLATION


def test_changed_password_disconnects(start: StartServer) -> None:
    server = start(ANNA)
    with login(server, "anna", "a") as client:
        reload(server, USERS.format(anna="HUSH", more=""))
        assert rest(client) == VIOLATION
    login(server, "anna", "HUSH").close()
    assert "HUSH" not in server.log


def test_authorization_that_appears_closes_anonymous_connections(start: StartServer) -> None:
    server = start("max_payload: 1000\n")
    with login(server) as client:
        reload(server, ANNA)
        assert rest(client) == VIOLATION
    with open_client(server) as client:
        assert client.info["auth_required"] is True


def test_changed_permissions_remove_subscriptions(start: StartServer) -> None:
    rules = "authorization {{ users: [ {{user: u, password: u, permissions: {{ {} }} }} ] }}\n"
    server = start(rules.format("subscribe: [keep, drop, crew], publish: [x, y, keep]"))
    with login(server, "u", "u") as client:
        assert replies(client, "SUB keep 1\r\nSUB drop 2\r\nSUB crew q 3\r\n") == []
        reload(server, rules.format("subscribe: [keep], publish: [x, keep]"))
        answers = replies(client, publish("y", "1") + publish("keep", "2"))
    assert sorted(answers) == sorted(
        [
            b'-ERR \'Permissions Violation for Subscription to "drop" (sid "2")\'',
            b'-ERR \'Permissions Violation for Subscription to "crew" using queue "q" (sid "3")\'',
            b"-ERR 'Permissions Violation for Publish to \"y\"'",
            b"MSG keep 1 1",
            b"2",
        ]
    )


def test_changed_max_payload_holds_for_old_and_new_connections(start: StartServer) -> None:
    server = start("max_payload: 1000\n")
    with login(server) as old:
        assert replies(old, publish("a", "x" * 900)) == []
        reload(server, "max_payload: 500\n")
        server.wait_for_log(r"\[INF\] Reloaded: max_payload = 500")
        with open_client(server) as new:
            assert new.info["max_payload"] == 500
        old.send(publish("a", "x" * 501))
        assert rest(old) == b"-ERR 'Maximum Payload Violation'\r\n"


def test_debug_can_be_turned_on_and_off(start: StartServer) -> None:
    server = start("debug: false\n")
    reload(server, "debug: true\n")
    server.wait_for_log(r"\[INF\] Reloaded: debug = true")
    login(server).close()
    server.wait_for_log(r"\[DBG\] .* Client connection closed: Client Closed")
    reload(server, "debug: false\n")
    seen = len(server.lines)
    login(server).close()
    reload(server, "debug: false\n")
    assert not any("[DBG]" in line for line in server.lines[seen:])


def test_lowered_max_connections_is_applied(start: StartServer) -> None:
    server = start("max_connections: 10\n")
    with login(server) as client:
        reload(server, "max_connections: 1\n")
        with open_client(server, read_info=False) as second:
            assert b"-ERR 'maximum connections exceeded'\r\n" in second.read_to_end()
        assert replies(client, "") == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("max_payload: 500\nserver_name: other\n", "not supported"),
        ('max_payload: 500\nhttp: "127.0.0.1:-1"\n', "not supported"),
        ("max_payload: 500\nbogus_key: 1\n", "bogus_key"),
        ("max_payload: 500\nport {\n", r"line \d|\.conf:\d"),
    ],
    ids=["server-name", "monitor-port", "unknown-key", "syntax"],
)
def test_refused_reload_changes_nothing(start: StartServer, config: str, words: str) -> None:
    server = start("max_payload: 1000\nserver_name: first\n")
    with login(server) as client:
        outcome = reload(server, config)
        assert re.search(r"\[ERR\] Failed to reload server configuration: ", outcome)
        assert re.search(words, outcome)
        assert replies(client, publish("a", "x" * 900)) == []
        with open_client(server) as new:
            assert new.info["max_payload"] == 1000
            assert new.info["server_name"] == "first"


def test_port_given_as_flag_is_not_moved_by_a_reload(start: StartServer) -> None:
    server = start("max_payload: 1000\n")
    outcome = reload(server, "port: 1\nmax_payload: 500\n")
    assert "Reloaded server configuration" in outcome
    login(server).close()


def test_reload_without_a_config_file_is_refused(start: StartServer) -> None:
    server = start()
    seen = len(server.lines)
    server.signal(signal.SIGHUP)
    assert "Failed to reload server configuration" in reload_outcome(server, seen)
    login(server).close()


# Lame duck


def test_lame_duck_tells_clients_and_ends(start: StartServer) -> None:
    server = start('lame_duck_duration: "30s"\nlame_duck_grace_period: "100ms"\n')
    port = server.port
    with login(server) as client, login(server, protocol=0) as old:
        server.signal(signal.SIGUSR2)
        info = client.read_info()
        assert info["ldm"] is True
        assert info["server_id"] == client.info["server_id"]
        with pytest.raises(ConnectionRefusedError):
            RawClient(port)
        assert client.read_to_end().replace(b"PING\r\n", b"") == b""
        assert old.read_to_end().replace(b"PING\r\n", b"") == b""
        assert server.wait(30) == 0
    for text in (
        'Trapped "user defined signal 2" signal',
        "Entering lame duck mode, stop accepting new clients",
        "Closing existing clients",
        "Initiating Shutdown...",
        "Server Exiting..",
    ):
        server.wait_for_log(re.escape(text))


def test_lame_duck_serves_during_grace(start: StartServer) -> None:
    server = start('lame_duck_duration: "30s"\nlame_duck_grace_period: "4s"\n')
    with login(server) as client:
        server.signal(signal.SIGUSR2)
        assert client.read_info()["ldm"] is True
        assert replies(client, "SUB a 1\r\n" + publish("a", "x")) == [b"MSG a 1 1", b"x"]
    assert server.wait(30) == 0


def test_lame_duck_without_clients_ends_at_once(start: StartServer) -> None:
    server = start()
    server.signal(signal.SIGUSR2)
    assert server.wait(30) == 0
    server.wait_for_log("Entering lame duck mode")


# The --signal flag


@pytest.mark.parametrize("target", ["pid", "pid-file"])
def test_signal_flag_reloads(start: StartServer, tmp_path: Path, kind: str, target: str) -> None:
    pid_file = tmp_path / "server.pid"
    server = start(ANNA, "-P", str(pid_file))
    config_path(server).write_text(ANNA_AND_BERT)
    seen = len(server.lines)
    name = str(server.process.pid) if target == "pid" else str(pid_file)
    result = run_once(kind, "--signal", f"reload={name}")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert "Reloaded server configuration" in reload_outcome(server, seen)
    login(server, "bert", "b").close()


@pytest.mark.parametrize("command", ["quit", "term", "ldm"])
def test_signal_flag_ends_the_server(start: StartServer, kind: str, command: str) -> None:
    server = start()
    assert run_once(kind, "-sl", f"{command}={server.process.pid}").returncode == 0
    assert server.wait() == 0
    server.wait_for_log("Server Exiting")


def test_signal_flag_stop_ends_the_server_at_once(start: StartServer, kind: str) -> None:
    server = start()
    assert run_once(kind, "--signal", f"stop={server.process.pid}").returncode == 0
    server.wait()


def test_signal_flag_reopens_the_log(start: StartServer, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "server.log"
    server: ServerProcess = start("", "-l", str(path), ready=False)
    wait_for(lambda: path.exists() and "Server is ready" in path.read_text(), "the log file", 20)
    path.rename(tmp_path / "rotated.log")
    assert run_once(kind, f"--signal=reopen={server.process.pid}").returncode == 0
    wait_for(lambda: path.exists() and "File log re-opened" in path.read_text(), "the new log file")


def test_signal_flag_refuses_an_unknown_command(start: StartServer, kind: str) -> None:
    server = start()
    result = run_once(kind, "--signal", f"bogus={server.process.pid}")
    assert result.returncode == 1
    assert '"bogus"' in result.stderr
    login(server).close()


@pytest.mark.parametrize("target", ["999999999", "/absent/server.pid"])
def test_signal_flag_refuses_a_process_that_does_not_exist(kind: str, target: str) -> None:
    result = run_once(kind, "--signal", f"reload={target}")
    assert result.returncode == 1
    assert target in result.stderr
