"""The command line: parsing as Go does it, what overrides what, and --signal."""

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

from certificates import Authority
from tradewind._version import __version__
from tradewind.errors import ConfigError
from tradewind.options import (
    AuthorizationOptions,
    Secret,
    ServerOptions,
    TlsOptions,
    UserOptions,
)
from tradewind.server.lifecycle import send_signal as sending
from tradewind.server.lifecycle.command import run_command
from tradewind.server.lifecycle.flags import USAGE, FlagError, load_options, merge, parse_flags
from tradewind.server.lifecycle.send_signal import running_servers, send_signal

OFFICIAL = Path(sys.executable).parent / "nats-server"


def options(*arguments: str) -> ServerOptions:
    return merge(ServerOptions(), parse_flags(list(arguments)))


@pytest.mark.parametrize("arguments", [["-p", "1"], ["--p", "1"], ["-p=1"], ["--port=1"]])
def test_dashes_and_equal_signs_do_not_matter(arguments: list[str]) -> None:
    assert options(*arguments).port == 1


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["-p", "-1"], "port", -1),
        (["-p", "0"], "port", 4222),
        (["-p", "0x10"], "port", 16),
        (["-a", "::"], "host", "::"),
        (["--net", "h"], "host", "h"),
        (["--addr="], "host", "0.0.0.0"),
        (["-n", "x"], "server_name", "x"),
        (["--name", "x"], "server_name", "x"),
        (["-m", "8222"], "http_port", 8222),
        (["-ms", "8222"], "https_port", 8222),
        (["-P", "f"], "pid_file", "f"),
        (["--ports_file_dir", "d"], "ports_file_dir", "d"),
        (["--client_advertise", "a:1"], "client_advertise", "a:1"),
        (["-l", "f"], "log_file", "f"),
        (["--log_size_limit", "5"], "log_size_limit_bytes", 5),
        (["--max_traced_msg_len", "5"], "max_traced_msg_len", 5),
        (["-D"], "debug", True),
        (["--debug=false"], "debug", False),
        (["-V"], "trace", True),
        (["-T=false"], "logtime", False),
        (["--logtime_utc"], "logtime_utc", True),
        (["-s"], "syslog", True),
        (["-r", "udp://h:1"], "remote_syslog", "udp://h:1"),
    ],
)
def test_flag_sets_option(arguments: list[str], field: str, value: object) -> None:
    assert getattr(options(*arguments), field) == value


@pytest.mark.parametrize(
    ("flag", "debug", "trace", "verbose"),
    [
        ("-DV", True, True, False),
        ("-VV", False, True, True),
        ("-DVV", True, True, True),
        ("-DVV=false", False, False, False),
    ],
)
def test_combined_log_flags(flag: str, debug: bool, trace: bool, verbose: bool) -> None:
    found = options(flag)
    assert (found.debug, found.trace, found.trace_verbose) == (debug, trace, verbose)


def test_jetstream_flags() -> None:
    assert options("-js", "-sd=/x").jetstream.enabled
    assert options("--jetstream", "--store_dir", "/x").jetstream.store_dir == "/x"
    assert not options("-sd", "/x").jetstream.enabled


def test_authorization_flags_and_that_they_never_show() -> None:
    flags = parse_flags(["--user", "a", "--pass", "hush"])
    assert merge(ServerOptions(), flags).authorization == AuthorizationOptions("a", Secret("hush"))
    assert "hush" not in repr(flags)
    assert options("--auth", "t").authorization.token.reveal() == "t"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--bogus"], "flag provided but not defined: -bogus"),
        (["-p"], "flag needs an argument: -p"),
        (["-p", "abc"], 'invalid value "abc" for flag -p: parse error'),
        (["-D=xyz"], 'invalid boolean value "xyz" for -D: parse error'),
        (["---p"], "bad flag syntax: ---p"),
        (["-=5"], "bad flag syntax: -=5"),
    ],
)
def test_bad_command_line_is_answered_as_nats_server_answers(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    result = subprocess.run([OFFICIAL, *arguments], capture_output=True, text=True, timeout=30)
    assert run_command(arguments) == result.returncode
    output = capsys.readouterr()
    assert output.err == result.stderr == f"{text}\n"
    assert output.out == f"{USAGE}\n"
    assert result.stdout.startswith("\nUsage: ")


@pytest.mark.slow
@given(st.lists(st.text(max_size=8) | st.sampled_from(["-p", "-D", "--", "-c", "=", "-t=0"])))
def test_any_command_line_parses_or_is_refused(arguments: list[str]) -> None:
    try:
        merge(ServerOptions(), parse_flags(arguments))
    except ConfigError as error:
        refusal = error
    else:
        refusal = None
    assert refusal is None or str(refusal)


def test_parsing_stops_at_the_first_other_word() -> None:
    flags = parse_flags(["-D", "help", "--bogus"])
    assert (flags.values, flags.word) == ({"debug": True}, "help")
    assert parse_flags(["--", "-p"]).word == "-p"


# -- file and flags together


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def load_both(text: str, *arguments: str) -> ServerOptions:
        path = tmp_path / "test.conf"
        path.write_text(text)
        return load_options(parse_flags(["-c", str(path), *arguments])).options

    return load_both


def test_flags_override_the_file_and_the_rest_stays(load: Any) -> None:
    merged = load("port: 1, host: h, debug: true, max_conn: 5", "-p", "2", "-D=false")
    assert (merged.port, merged.host, merged.debug, merged.max_connections) == (2, "h", False, 5)


def test_flags_that_were_not_given_override_nothing(load: Any) -> None:
    merged = load("logtime: false, jetstream: {store_dir: x}", "-js")
    assert not merged.logtime
    assert (merged.jetstream.enabled, merged.jetstream.store_dir) == (True, "x")


def test_monitoring_listens_where_clients_do_but_never_on_a_wildcard_unless_told_so(
    load: Any,
) -> None:
    assert load("host: h", "-m", "1").http_host == "h"
    assert load("http: 'm:1', host: h").http_host == "m"
    assert options("-m", "1").http_host == "127.0.0.1"
    assert options("-a", "::", "-m", "1").http_host == "127.0.0.1"
    assert load("http: '0.0.0.0:1'").http_host == "0.0.0.0"
    assert options().http_host == ""


def test_checks_apply_to_file_and_flags_together(load: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        load("accounts { A {users: [{user: a}]} }", "--auth", "t")


def test_a_single_user_beside_users_of_a_file_is_said_to_have_no_effect(load: Any) -> None:
    merged = load("authorization { users: [{user: a}] }", "--user", "b")
    assert "--user has no effect" in merged.notices[0]
    assert merged.authorization.users == (UserOptions("a"),)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cluster", "nats://127.0.0.1:-1", "--routes", "nats://u:hush@127.0.0.1:1"],
        ["--cluster_listen", "nats://127.0.0.1:-1"],
        ["--cluster_name", "x", "--connect_retries", "5", "--no_advertise"],
        ["--profile", "6060"],
    ],
)
def test_flags_for_many_servers_are_answered_with_one_line(arguments: list[str]) -> None:
    (notice,) = options(*arguments).notices
    assert "ignored" in notice
    assert "hush" not in notice


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "70000"], "--port must be a port up to 65535, or -1, not 70000"),
        (["-n", "a b"], "must not contain spaces"),
        (["--tls"], "needs --tlscert"),
        (["--tlsverify", "--tlscert", "c"], "needs --tlskey"),
        (["--tls", "--tlscert", "none.pem", "--tlskey", "none.key"], "none.pem"),
    ],
)
def test_flag_value_is_checked(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        options(*arguments)


def test_tls_flags(tmp_path: Path, load: Any) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    files = ["--tlscert", server.cert_file, "--tlskey", server.key_file]
    assert options(*files).tls == TlsOptions(server.cert_file, server.key_file)
    verified = options("--tlsverify", "--tlscacert", authority.ca_file, *files).tls
    assert verified is not None
    assert (verified.verify, verified.ca_file) == (True, authority.ca_file)
    block = f"tls {{ cert_file: '{server.cert_file}', key_file: '{server.key_file}', timeout: 5 }}"
    assert load(block).tls.timeout_ns == 5 * 10**9
    assert load(block, *files).tls.timeout_ns == 5 * 10**9
    assert load(block, "--tls=false").tls is None


def test_a_tls_block_is_read_completely(tmp_path: Path, load: Any) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    block = (
        f"tls {{ cert_file: '{server.cert_file}', key_file: '{server.key_file}'\n"
        f"ca_file: '{authority.ca_file}', verify_and_map: true, handshake_first: '300ms'\n"
        f"min_version: '1.3', pinned_certs: ['{server.pin.upper()}'], insecure: false\n"
        "cipher_suites: [TLS_AES_128_GCM_SHA256], curve_preferences: [X25519] }"
    )
    loaded = load(block)
    assert loaded.tls == TlsOptions(
        server.cert_file,
        server.key_file,
        authority.ca_file,
        verify=True,
        verify_and_map=True,
        handshake_first_ns=300_000_000,
        min_version="1.3",
        cipher_suites=("TLS_AES_128_GCM_SHA256",),
        pinned_certs=frozenset({server.pin}),
    )
    assert len(loaded.notices) == 1
    assert load(block.replace("'300ms'", "true")).tls.handshake_first_ns == 0
    assert load(block.replace("'300ms'", "auto")).tls.handshake_first_ns == 50_000_000
    assert load(block.replace("'300ms'", "false")).tls.handshake_first_ns is None


# -- answers without a server


def test_version_begins_with_what_tools_look_for(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["-v"], ["--version"], ["version"], ["-D", "version"]):
        assert run_command(arguments) == 0
        output = capsys.readouterr().out
        assert output == f"nats-server: v2.15.1\ntradewind-server: v{__version__}\n"


def test_help_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["-h"], ["--help"], ["help"]):
        assert run_command(arguments) == 0
        assert "Usage: tradewind-server" in capsys.readouterr().out
    assert run_command(["--help_tls"]) == 0
    assert "cert_file" in capsys.readouterr().out


def test_version_and_check_do_not_load_the_server() -> None:
    code = (
        "import sys; from tradewind.server.lifecycle.command import run_command; "
        "run_command(['-v']); "
        "print([name for name in ('asyncio', 'ssl', 'uvloop', 'cryptography', 'nacl') "
        "if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["-t"], ["extra"], ["-c", "none.conf"], ["-t", "extra"]])
def test_start_that_cannot_be_ends_with_one_line_and_code_1(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    result = subprocess.run([OFFICIAL, *arguments], capture_output=True, text=True, timeout=30)
    assert run_command(arguments) == result.returncode == 1
    errors = capsys.readouterr().err
    assert errors.startswith("tradewind-server: ")
    assert errors.count("\n") == 1


# -- signals: only ever to processes of this test, or to none


@pytest.fixture
def sleeper() -> Any:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_signal_by_pid(sleeper: Any) -> None:
    assert run_command(["--signal", f"term={sleeper.pid}"]) == 0
    assert sleeper.wait(10) == -signal.SIGTERM


def test_signal_by_pid_file(sleeper: Any, tmp_path: Path) -> None:
    path = tmp_path / "server.pid"
    path.write_text(f"{sleeper.pid}\n")
    assert run_command(["-sl", f"stop={path}"]) == 0
    assert sleeper.wait(10) == -signal.SIGKILL


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A process table with two of our servers and others that only look like one."""
    commands = {
        41: ["/usr/bin/python3", "/opt/bin/tradewind-server", "-p", "1"],
        420: ["python3.11", "-m", "tradewind.server.server_main"],
        43: ["/usr/bin/nats-server"],
        44: ["vim", "tradewind-server"],
        45: ["python3", "other.py", "tradewind-server"],
        os.getpid(): ["python3", "/opt/bin/tradewind-server", "--signal", "stop"],
    }
    for pid, words in commands.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text("\0".join(words) + "\0")
    (tmp_path / "46").mkdir()
    (tmp_path / "self").mkdir()
    return tmp_path


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals are recorded instead of sent."""
    recorded: list[tuple[int, int]] = []
    monkeypatch.setattr(sending.os, "kill", lambda pid, number: recorded.append((pid, number)))
    return recorded


def test_only_our_own_servers_are_found_by_name(proc: Path) -> None:
    assert running_servers(proc) == [41, 420]


def test_signal_without_pid_needs_exactly_one_server(
    proc: Path, sent: list[tuple[int, int]]
) -> None:
    with pytest.raises(ConfigError, match=r"multiple .*\n41\n420"):
        send_signal("reload", proc)
    (proc / "420" / "cmdline").unlink()
    send_signal("reload", proc)
    assert sent == [(41, signal.SIGHUP)]
    (proc / "41" / "cmdline").unlink()
    with pytest.raises(ConfigError, match="no tradewind-server processes running"):
        send_signal("reload", proc)


def test_signal_with_a_pid_pattern(proc: Path, sent: list[tuple[int, int]]) -> None:
    send_signal("ldm=42*", proc)
    assert sent == [(420, signal.SIGUSR2)]
    send_signal("quit=*", proc)
    assert sent[1:] == [(41, signal.SIGINT), (420, signal.SIGINT)]
    with pytest.raises(ConfigError, match="pid like 9"):
        send_signal("quit=9*", proc)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("foo", 'unknown signal "foo"'),
        ("=5", 'unknown signal ""'),
        ("stop=abc", "invalid pid: abc"),
        ("stop=-1", "invalid pid: -1"),
        ("stop=0", "invalid pid: 0"),
        ("stop=1=2", "invalid signal parameters"),
        ("stop=99999999999999999999", "no such process"),
    ],
)
def test_bad_signal_expression(expression: str, words: str, proc: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        send_signal(expression, proc)


def test_a_flag_error_is_a_config_error() -> None:
    assert issubclass(FlagError, ConfigError)
