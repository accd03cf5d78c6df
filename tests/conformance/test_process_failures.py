"""Starts that must fail: the exit code, which stream says why, and in which shape.

Programs that start servers (the tests of client libraries do) look at all three.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers_ops import run_once

LOOPBACK = ["-a", "127.0.0.1", "-p", "-1"]
FATAL = r"\A(\[\d+\] \S+ \S+ \[(INF|WRN)\] .*\n)*\[\d+\] \S+ \S+ \[FTL\] "


@dataclass(frozen=True)
class Failure:
    """FOLDER, FILE and BUSY in arguments and config: a folder, a file in it, and a port in use."""

    arguments: list[str]
    # The whole of standard error; {folder}, {file} and {busy} stand for the same,
    # {program} for the name of the server's program: each speaks of itself.
    stderr: str
    config: str | bytes | None = None
    code: int = 1
    usage: bool = False


def usage(arguments: list[str], text: str) -> Failure:
    """nats-server gives 0 although nothing was done."""
    return Failure(arguments, rf"\A{re.escape(text)}\n\Z", code=0, usage=True)


def refused(arguments: list[str], text: str, config: str | bytes | None = None) -> Failure:
    """Before anything is started: one line without a time."""
    return Failure(arguments, rf"\A{{program}}: .*{text}.*\n+\Z", config)


def fatal(arguments: list[str], text: str, config: str | None = None) -> Failure:
    """After the first lines of the log: the last one has the reason."""
    return Failure(arguments, rf"{FATAL}{text}.*\n\Z", config)


FAILURES = {
    "flag-unknown": usage(["--bogus"], "flag provided but not defined: -bogus"),
    "flag-unknown-after-good-ones": usage(
        [*LOOPBACK, "-bogus=1"], "flag provided but not defined: -bogus"
    ),
    "flag-without-value": usage(["-p"], "flag needs an argument: -p"),
    "flag-not-a-number": usage(["-p", "abc"], 'invalid value "abc" for flag -p: parse error'),
    "flag-not-a-truth": usage(["-D=maybe"], 'invalid boolean value "maybe" for -D: parse error'),
    "flag-with-three-dashes": usage(["---p"], "bad flag syntax: ---p"),
    "surplus-word": refused(["surplus"], 'unrecognized command: "surplus"'),
    "name-with-blank": refused([*LOOPBACK, "-n", "a b"], "spaces"),
    "config-absent": refused(["-c", "FOLDER/absent"], r"{folder}/absent\b.*[Nn]o such file"),
    "config-is-a-folder": refused(["-c", "FOLDER"], r"{folder}\b.*[Ii]s a directory"),
    "config-unknown-key": refused([], r"c\.conf:2:.*\bbogus\b", "port: -1\nbogus: 1\n"),
    "config-open-block": refused([], "", "accounts {\n"),
    "config-wrong-type": refused([], r"c\.conf:1:", 'max_payload: "abc"\n'),
    "config-not-text": refused([], r"c\.conf:1:", b"\xff\xfe\x00\x01" * 30),
    "config-include-absent": refused([], "absent.conf.*[Nn]o such file", 'include "absent.conf"\n'),
    "config-certificate-absent": refused(
        [],
        r"c\.conf:1:.*/absent/cert\.pem.*[Nn]o such file",
        'tls { cert_file: "/absent/cert.pem", key_file: "/absent/key.pem" }\n',
    ),
    "tls-without-certificate": refused([*LOOPBACK, "--tls"], "certificate"),
    "tls-certificate-absent": refused(
        [*LOOPBACK, "--tls", "--tlscert=/absent", "--tlskey=/absent"], "/absent.*[Nn]o such file"
    ),
    "signal-to-nobody": Failure(
        ["--signal", "stop=999999999"],
        r'\A{program}: \n?signal "stop" 999999999: no such process\n\Z',
    ),
    "port-in-use": fatal(
        ["-a", "127.0.0.1", "-p", "BUSY"],
        r"Error listening on port: 127\.0\.0\.1:{busy}, "
        r'"listen tcp 127\.0\.0\.1:{busy}: bind: address already in use"',
    ),
    "port-in-use-by-config": fatal(
        ["-p", "BUSY"],
        r"Error listening on port: 127\.0\.0\.1:{busy}, "
        r'"listen tcp 127\.0\.0\.1:{busy}: bind: address already in use"',
        'host: "127.0.0.1"\n',
    ),
    "address-of-somebody-else": fatal(
        ["-a", "192.0.2.1", "-p", "-1"],
        r"Error listening on port: 192\.0\.2\.1:0, "
        r'"listen tcp 192\.0\.2\.1:0: bind: cannot assign requested address"',
    ),
    "address-unknown": fatal(
        ["-a", "256.1.1.1", "-p", "-1"],
        r'Error listening on port: 256\.1\.1\.1:0, "listen tcp: lookup 256\.1\.1\.1: no such host"',
    ),
    "monitor-port-in-use": fatal(
        [*LOOPBACK, "-m", "BUSY"],
        r"Can't start monitoring: can't listen to the monitor port: "
        r"listen tcp 127\.0\.0\.1:{busy}: bind: address already in use",
    ),
    "store-is-a-file": fatal(
        [*LOOPBACK, "-js", "-sd", "FILE"],
        "Can't start JetStream: storage directory is not a directory",
    ),
    "store-below-a-file": fatal(
        [*LOOPBACK, "-js", "-sd", "FILE/deeper/still"],
        "Can't start JetStream: storage directory is not a directory",
    ),
    "store-of-the-config-is-a-file": fatal(
        LOOPBACK,
        "Can't start JetStream: storage directory is not a directory",
        'jetstream { store_dir: "FILE" }\n',
    ),
    "pid-file-without-folder": fatal(
        [*LOOPBACK, "-P", "FOLDER/absent/pid"],
        r"Could not write pidfile: .*{folder}/absent/pid: [Nn]o such file or directory",
    ),
    "log-without-folder": Failure(
        [*LOOPBACK, "-l", "FOLDER/absent/log"],
        r"\A.* open .*{folder}/absent/log'?: [Nn]o such file or directory\n\Z",
    ),
    "log-is-a-folder": Failure(
        [*LOOPBACK, "-l", "FOLDER"], r"\A.* open .*{folder}'?: [Ii]s a directory\n\Z"
    ),
}


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize("case", FAILURES)
def test_failed_start_says_why_and_ends(kind: str, tmp_path: Path, busy: int, case: str) -> None:
    failure = FAILURES[case]
    file = tmp_path / "file"
    file.write_text("not a folder")
    words = {"FOLDER": str(tmp_path), "FILE": str(file), "BUSY": str(busy)}
    arguments = [filled(argument, words) for argument in failure.arguments]
    if failure.config is not None:
        path = tmp_path / "c.conf"
        config = failure.config
        path.write_bytes(config if isinstance(config, bytes) else filled(config, words).encode())
        arguments = ["-c", str(path), *arguments]

    result = run_once(kind, *arguments)

    patterns = {f"{{{name.lower()}}}": re.escape(value) for name, value in words.items()}
    patterns["{program}"] = "tradewind-server" if kind == "tradewind" else "nats-server"
    expected = filled(failure.stderr, patterns)
    assert result.returncode == failure.code
    assert re.search(expected, result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert "Server is ready" not in result.stderr
    if failure.usage:
        assert result.stdout.startswith("\nUsage: ")
    else:
        assert result.stdout == ""
    assert file.read_text() == "not a folder"
