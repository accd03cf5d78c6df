"""Log lines: their shape, what start and stop say, log files, and secrets that stay out."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from helpers_ops import VIOLATION, connect_line, login, open_client, refusal, replies

from harness import RawClient, ServerProcess, StartServer, wait_for

LINE = re.compile(
    r"\[(?P<pid>\d+)\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(INF|DBG|WRN|ERR|FTL|TRC)\] .*"
)


def test_every_line_has_pid_time_and_level(start: StartServer) -> None:
    server = start("", "-DV")
    with login(server) as client:
        replies(client, "SUB a 1\r\nPUB b 0\r\n\r\n")
    server.wait_for_log("Client connection closed")
    server.signal(signal.SIGTERM)
    server.wait()
    for line in server.lines:
        match = LINE.fullmatch(line)
        assert match, line
        assert int(match["pid"]) == server.process.pid


def test_start_tells_version_name_id_and_ports(start: StartServer) -> None:
    server = start("", "--name", "crow")
    texts = [line.partition("] ")[2].partition("] ")[2] for line in server.lines]
    assert re.fullmatch(r"Starting \S+-server", texts[0])
    assert any(re.fullmatch(r"  Version:  \d+\.\d+\.\d+\S*", text) for text in texts)
    assert "  Name:     crow" in texts
    assert any(re.fullmatch(r"  ID:       N[A-Z2-7]{55}", text) for text in texts)
    listening = f"Listening for client connections on 127.0.0.1:{server.port}"
    assert texts.index(listening) < texts.index("Server is ready")


LISTENERS = """
server_name: crow
http: "127.0.0.1:-1"
jetstream { store_dir: "STORE", domain: hub }
websocket { listen: "127.0.0.1:-1", no_tls: true }
leafnodes { listen: "127.0.0.1:-1" }
"""
# What scripts wait for, in order
LANDMARKS = [
    r"Starting nats-server",
    r"  Version:  2\.15\.1",
    r"  Name:     crow",
    r"  ID:       N[A-Z2-7]{55}",
    r"Using configuration file: \S+ \(sha256:[0-9a-f]{64}\)",
    r"Starting http monitor on 127\.0\.0\.1:\d+",
    r"Starting JetStream",
    r"---------------- JETSTREAM ----------------",
    r"  Max Memory:      \d+\.\d\d \wB",
    r"  Max Storage:     \d+\.\d\d \wB",
    r'  Store Directory: "\S+/jetstream"',
    r"  Domain:          hub",
    r"  API Level:       5",
    r"-------------------------------------------",
    r"Took \S+ to start JetStream",
    r"Listening for websocket clients on ws://127\.0\.0\.1:\d+",
    r"Websocket not configured with TLS\. DO NOT USE IN PRODUCTION!",
    r"Listening for leafnode connections on 127\.0\.0\.1:\d+",
    r"Listening for client connections on 127\.0\.0\.1:\d+",
    r"Server is ready",
    r'Trapped "terminated" signal',
    r"Initiating Shutdown\.\.\.",
    r"Initiating JetStream Shutdown\.\.\.",
    r"JetStream Shutdown",
    r"Server Exiting\.\.",
]


def test_life_of_a_server_has_its_landmarks_in_order(start: StartServer, tmp_path: Path) -> None:
    server = start(LISTENERS.replace("STORE", str(tmp_path)))
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    texts = [line.partition("] ")[2].partition("] ")[2] for line in server.lines]
    places = []
    for landmark in LANDMARKS:
        found = [index for index, text in enumerate(texts) if re.fullmatch(landmark, text)]
        assert len(found) == 1, (landmark, server.log)
        places += found
    assert places == sorted(places)


def test_plaintext_passwords_are_warned_of(start: StartServer) -> None:
    server = start("authorization { users: [ {user: a, password: HUSH} ] }")
    server.wait_for_log(r"\[WRN\] Plaintext passwords detected, use nkeys or bcrypt")
    assert "HUSH" not in server.log


@pytest.mark.parametrize("setting", ["flag", "config"])
def test_time_can_be_left_out(start: StartServer, setting: str) -> None:
    server = start("", "-T=false") if setting == "flag" else start("logtime: false\n")
    for line in server.lines:
        assert re.fullmatch(r"\[\d+\] \[(INF|WRN)\] .*", line), line


@pytest.mark.parametrize("flag", ["-D", "--debug", "debug: true"])
def test_debug_tells_of_connections(start: StartServer, flag: str) -> None:
    server = start("", flag) if flag.startswith("-") else start(flag)
    with login(server, name="crow", lang="py", version="9.9") as client:
        cid = client.info["client_id"]
    peer = rf"\[DBG\] 127\.0\.0\.1:\d+ - cid:{cid} - "
    server.wait_for_log(peer + "Client connection created")
    server.wait_for_log(peer + r'"v9\.9:py:crow" - .*Client connection closed: Client Closed')


def test_without_debug_connections_are_not_logged(start: StartServer) -> None:
    server = start()
    login(server).close()
    server.signal(signal.SIGTERM)
    server.wait()
    assert "cid:" not in server.log
    assert "[DBG]" not in server.log


@pytest.mark.parametrize("flag", ["-V", "--trace", "-DV"])
def test_trace_shows_the_protocol_without_secrets(start: StartServer, flag: str) -> None:
    server = start("", flag)
    with login(server, "anna", "HUSH-PASSWORD", auth_token="HUSH-TOKEN") as client:
        client.send("SUB a 1\r\nPUB a 5\r\nhello\r\n")
        client.read_message()
        replies(client, "")
    for text in (
        r"<<- \[CONNECT \{.*\}\]",
        r"<<- \[PING\]",
        r"->> \[PONG\]",
        r"<<- \[SUB a 1\]",
        r"<<- \[PUB a 5\]",
        r'<<- MSG_PAYLOAD: \["hello"\]',
        r"->> \[MSG a 1 5\]",
    ):
        server.wait_for_log(r"\[TRC\] 127\.0\.0\.1:\d+ - cid:\d+ - .*" + text)
    assert "HUSH" not in server.log
    assert "[REDACTED]" in server.log


def test_secrets_of_refused_logins_stay_out_of_the_trace(start: StartServer) -> None:
    server = start("authorization { user: anna, password: HUSH-RIGHT }", "-DV")
    for line in (connect_line("anna", "HUSH-WRONG"), connect_line(auth_token="HUSH-WRONG")):
        assert refusal(server, line) == VIOLATION
    login(server, "anna", "HUSH-RIGHT").close()
    server.wait_for_log("Client connection closed: Client Closed")
    assert "HUSH" not in server.log


# Log files


def file_server(start: StartServer, path: Path) -> ServerProcess:
    server = start("", "-l", str(path), ready=False)
    wait_for(lambda: path.exists() and "Server is ready" in path.read_text(), "the log file", 20)
    return server


def test_log_file_takes_all_lines(start: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    server = file_server(start, path)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert server.lines == []
    lines = path.read_text().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert lines[-1].endswith("[INF] Server Exiting..")


def test_log_file_is_appended_to(start: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("earlier line\n")
    file_server(start, path)
    assert path.read_text().startswith("earlier line\n[")


def test_log_file_from_the_config(start: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    start(f'log_file: "{path}"\n', ready=False)
    wait_for(lambda: path.exists() and "Server is ready" in path.read_text(), "the log file", 20)


def test_log_is_reopened_after_a_rename(start: StartServer, tmp_path: Path) -> None:
    path, rotated = tmp_path / "server.log", tmp_path / "server.log.1"
    server = file_server(start, path)
    path.rename(rotated)
    server.signal(signal.SIGUSR1)
    wait_for(lambda: path.exists() and "File log re-opened" in path.read_text(), "the new log file")
    assert 'Trapped "user defined signal 1" signal' in rotated.read_text()
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert "Server Exiting.." in path.read_text()
    assert "Server Exiting.." not in rotated.read_text()


def test_reopen_without_a_log_file_is_harmless(start: StartServer) -> None:
    server = start()
    server.signal(signal.SIGUSR1)
    server.wait_for_log(r"File log re-open ignored, not a file logger")
    with open_client(server) as client:
        client.send(connect_line() + "PING\r\n")
        client.expect("PONG")


def test_log_file_above_its_size_limit_is_rotated(start: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    start("", "-DV", "-l", str(path), "--log_size_limit", "2000", ready=False)
    name = r"server\.log\.\d{4}\.\d\d\.\d\d\.\d\d\.\d\d\.\d\d\.\d{9}"

    def is_rotated() -> bool:
        port = re.search(r"client connections on \S+:(\d+)", _all_text(tmp_path))
        if port is not None:
            with RawClient(int(port[1])) as client:
                replies(client.connect(), "PUB a 5\r\nhello\r\n")
        return any(re.fullmatch(name, one.name) for one in tmp_path.iterdir())

    wait_for(is_rotated, "a second log file")
    assert re.search(r"Rotated log, backup saved as \S*server\.log\.\d{4}\.", _all_text(tmp_path))


def _all_text(folder: Path) -> str:
    return "".join(one.read_text() for one in folder.iterdir() if "server.log" in one.name)
