"""The command line: spellings of flags, one-shot commands, bad configurations, files it writes."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import pytest
from helpers_ops import connect_line, fetch, open_client, run_once

from harness import RawClient, ServerProcess, StartServer, wait_for


@pytest.mark.parametrize(
    "flags",
    [
        ["-a", "127.0.0.1", "-p", "-1"],
        ["-a=127.0.0.1", "-p=-1"],
        ["--addr", "127.0.0.1", "--port", "-1"],
        ["--addr=127.0.0.1", "--port=-1"],
        ["-addr", "127.0.0.1", "-port=-1"],
        ["--net=127.0.0.1", "--p", "-1"],
    ],
    ids=" ".join,
)
def test_address_and_port_spellings(kind: str, flags: list[str]) -> None:
    server = ServerProcess(kind, flags)
    try:
        server.wait_ready()
        match = server.wait_for_log(r"Listening for client connections on (\S+):(\d+)")
        assert match[1] == "127.0.0.1"
        with RawClient(server.port) as client:
            assert client.info["port"] == server.port
            assert client.info["host"] == "127.0.0.1"
    finally:
        server.stop()


@pytest.mark.parametrize(
    "flags",
    [["-n", "crow"], ["--name", "crow"], ["--server_name=crow"], ["-server_name", "crow"]],
    ids=" ".join,
)
def test_server_name_spellings(start: StartServer, flags: list[str]) -> None:
    server = start("", *flags)
    with open_client(server) as client:
        assert client.info["server_name"] == "crow"
        assert client.info["server_id"] != "crow"


@pytest.mark.parametrize("form", ["-c {}", "-config {}", "--config {}", "-c={}", "--config={}"])
def test_config_spellings(start: StartServer, tmp_path: Path, form: str) -> None:
    path = tmp_path / "spelled.conf"
    path.write_text("server_name: from_file\n")
    server = start("", *form.format(path).split(" "))
    with open_client(server) as client:
        assert client.info["server_name"] == "from_file"
    server.wait_for_log(rf"Using configuration file: {re.escape(str(path))}")


def test_flags_win_over_the_config_file(start: StartServer) -> None:
    server = start("server_name: from_file\nport: 1\n", "--name", "from_flag")
    with open_client(server) as client:
        assert client.info["server_name"] == "from_flag"


def test_server_name_defaults_to_the_host_and_a_part_of_the_id(start: StartServer) -> None:
    """Differs: nats-server takes the whole server id."""
    server = start()
    with open_client(server) as client:
        name, server_id = client.info["server_name"], client.info["server_id"]
    if server.kind == "official":
        assert name == server_id
    else:
        assert name == f"{socket.gethostname().partition('.')[0]}-{server_id[2:8]}"


@pytest.mark.parametrize("flag", ["-m", "--http_port"])
def test_monitor_port_flag(start: StartServer, flag: str) -> None:
    server = start("", flag, "-1")
    assert fetch(server, "/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize("flag", ["-v", "--version", "-version"])
def test_version(kind: str, flag: str) -> None:
    result = run_once(kind, flag)
    assert result.returncode == 0
    assert re.fullmatch(r"nats-server: v2\.\d+\.\d+\S*", result.stdout.splitlines()[0])
    assert result.stderr == ""


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_goes_to_stdout(kind: str, flag: str) -> None:
    result = run_once(kind, flag)
    assert result.returncode == 0
    assert "Usage:" in result.stdout
    for option in ("--addr", "--port", "--config", "--http_port", "--signal", "--tlscert"):
        assert option in result.stdout


# Checking a configuration


def test_good_config_is_valid(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "good.conf"
    path.write_text("port: -1\nmax_payload: 2MB\n")
    result = run_once(kind, "-c", str(path), "-t")
    assert result.returncode == 0
    assert result.stdout == ""
    assert re.search(
        rf"configuration file {re.escape(str(path))} is valid \(sha256:[0-9a-f]{{64}}\)",
        result.stderr,
    )


def test_check_needs_a_config(kind: str) -> None:
    result = run_once(kind, "-t")
    assert result.returncode == 1
    assert "--config" in result.stderr


BAD_CONFIGS = {
    "unknown-key": ("port: -1\nbogus_key: 1\n", 2, "bogus_key"),
    "unknown-nested-key": ("authorization {\n  user: a\n  passwort: b\n}\n", 3, "passwort"),
    "duplicate-user": (
        "\n\nauthorization { users: [{user: twin, password: a}, {user: twin, password: b}] }\n",
        3,
        "twin",
    ),
    "bad-nkey": ("accounts { A { users: [\n {nkey: UBAD} ] } }\n", 2, "nkey"),
    "bad-connection-type": (
        "authorization { users: [\n{user: a, password: b, allowed_connection_types: [FOO]} ] }\n",
        2,
        "FOO",
    ),
    "lame-duck-too-short": ('lame_duck_duration: "1s"\n', 1, "lame_duck_duration"),
    "missing-certificate": (
        'port: -1\ntls { cert_file: "/absent/cert.pem", key_file: "/absent/key.pem" }\n',
        2,
        "/absent/cert.pem",
    ),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
@pytest.mark.parametrize("checking", [True, False], ids=["check", "start"])
def test_bad_config_names_file_line_and_word(
    kind: str, tmp_path: Path, case: str, checking: bool
) -> None:
    text, line, word = BAD_CONFIGS[case]
    path = tmp_path / "bad.conf"
    path.write_text(text)
    result = run_once(kind, "-c", str(path), *(["-t"] if checking else []))
    assert result.returncode == 1
    assert f"{path}:{line}:" in result.stderr
    assert word in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_syntax_error_names_the_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.conf"
    path.write_text("port: -1\n\naccounts { A { users: [} }\n")
    result = run_once(kind, "-c", str(path), "-t")
    assert result.returncode == 1
    assert re.search(r"line 3\b|bad\.conf:3:", result.stderr)


@pytest.mark.parametrize(
    "text",
    ["port: {", "port 1 2", "port: [1,2", 'a: "x', "a = 'x", "= 5", r'a: "\xz"', "accounts { A {"],
)
def test_syntax_errors_are_called_parse_errors(kind: str, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.conf"
    path.write_text(f"{text}\n")
    done = run_once(kind, "-t", "-c", str(path))
    assert done.returncode == 1
    assert "Parse error" in done.stderr


def test_undefined_variable_is_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.conf"
    path.write_text("port: -1\nserver_name: $NOT_SET_ANYWHERE\n")
    result = run_once(kind, "-c", str(path), "-t")
    assert result.returncode == 1
    assert "NOT_SET_ANYWHERE" in result.stderr
    assert re.search(r"line 2\b|bad\.conf:2:", result.stderr)


def test_secrets_do_not_appear_in_config_errors(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.conf"
    path.write_text(
        "authorization { users: [ {user: a, password: HUSH1}, {user: a, password: HUSH2} ]\n"
        " token: HUSH3 }\n"
    )
    result = run_once(kind, "-c", str(path))
    assert result.returncode == 1
    assert "HUSH" not in result.stderr + result.stdout


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("system_account: GHOST\n", "system.account"),
        ("max_payload: 100MB\n", "max_payload"),
        (
            'lame_duck_duration: "30s"\nlame_duck_grace_period: "40s"\n',
            "lame.duck.grace.period",
        ),
    ],
    ids=["system-account", "payload-over-pending", "grace-over-duration"],
)
def test_settings_that_contradict_each_other_stop_the_start(
    start: StartServer, config: str, words: str
) -> None:
    server = start(config, ready=False)
    assert server.wait() == 1
    assert re.search(words, server.log)
    assert "Server is ready" not in server.log


# Ports and files


def test_random_ports_differ(start: StartServer) -> None:
    first, second = start(), start()
    assert first.port != second.port


@pytest.mark.parametrize("flag", ["-P", "--pid"])
def test_pid_file(start: StartServer, tmp_path: Path, flag: str) -> None:
    path = tmp_path / "server.pid"
    server = start("", flag, str(path))
    assert path.read_text() == str(server.process.pid)


def test_pid_file_from_the_config(start: StartServer, tmp_path: Path) -> None:
    path = tmp_path / "server.pid"
    server = start(f'pid_file: "{path}"\n')
    assert path.read_text() == str(server.process.pid)


def ports_of(server: ServerProcess, folder: Path) -> dict[str, list[str]]:
    path = folder / f"nats-server_{server.process.pid}.ports"
    text = wait_for(lambda: path.exists() and path.read_text(), "the ports file")
    ports: dict[str, list[str]] = json.loads(text)
    return ports


def test_ports_file_lives_as_long_as_the_server(start: StartServer, tmp_path: Path) -> None:
    folder = tmp_path / "ports"
    folder.mkdir()
    server = start("", "--ports_file_dir", str(folder))
    assert ports_of(server, folder) == {"nats": [f"nats://127.0.0.1:{server.port}"]}
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert list(folder.iterdir()) == []


def test_ports_file_lists_every_listener(start: StartServer, tmp_path: Path) -> None:
    folder = tmp_path / "ports"
    folder.mkdir()
    server = start(
        f'ports_file_dir: "{folder}"\nhttp: "127.0.0.1:-1"\n'
        'websocket { listen: "127.0.0.1:-1", no_tls: true }\n'
    )
    ports = ports_of(server, folder)
    assert ports.keys() == {"nats", "monitoring", "websocket"}
    assert ports["nats"] == [f"nats://127.0.0.1:{server.port}"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", ports["monitoring"][0])
    assert re.fullmatch(r"ws://127\.0\.0\.1:\d+", ports["websocket"][0])


def test_ports_folder_that_does_not_exist_is_only_logged(
    start: StartServer, tmp_path: Path
) -> None:
    server = start("", "--ports_file_dir", str(tmp_path / "absent"))
    server.wait_for_log(r"\[ERR\] Error writing ports file")
    with open_client(server) as client:
        client.send(connect_line() + "PING\r\n")
        client.expect("PONG")


@pytest.mark.parametrize(
    "config",
    [
        'cluster { listen: "127.0.0.1:-1" }\n',
        'cluster { name: flock, listen: "127.0.0.1:-1" }\n',
        'leafnodes { listen: "127.0.0.1:-1" }\n',
        'leafnodes { host: "127.0.0.1", port: -1 }\n',
    ],
    ids=["cluster", "named-cluster", "leafnodes", "leafnodes-host-port"],
)
def test_listener_for_other_servers_does_not_prevent_clients(
    start: StartServer, config: str
) -> None:
    server = start(config)
    with open_client(server) as client:
        client.send(connect_line() + "PING\r\n")
        client.expect("PONG")
