"""`tradewind server generate`: what it asks, what it writes, and that servers start with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from certificates import Authority
from cli_outcome import Cli, Types
from harness import RawClient, ServerProcess
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE

FLAGS = ("--defaults", "--monitor-port", "0")


def started(kind: str, path: Path) -> ServerProcess:
    return ServerProcess(kind, ["-c", str(path), "-p", "-1"]).wait_ready()


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "server.conf"


def test_everything_is_asked(offline: Cli, types: Types, conf: Path) -> None:
    types(*("shop", "", "seven", "4333", "0", "y", "data", "1G", "accounts", "A B", ""))
    asked = offline("server", "generate", str(conf)).ok()
    for question in (
        *("Server Name", "Listen on", "Client Port", "Monitoring Port, 0 for none"),
        *("Store messages with JetStream", "Folder for messages", "Storage limit", "Login"),
        *("Accounts, separated by blanks", "TLS Certificate, Enter for none"),
    ):
        assert f"? {question} " in asked.err
    assert "must be a port from 0 to 65535, not 'seven'" in asked.err
    text = conf.read_text()
    for wanted in ('server_name: "shop"', "port: 4333", 'max_file_store: "1G"', "  A {", "  B {"):
        assert wanted in text
    assert conf.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["official", "tradewind"])
@pytest.mark.parametrize("login", ["none", "user", "token", "accounts"])
def test_both_servers_start_and_the_printed_login_enters(
    offline: Cli, conf: Path, kind: str, login: str
) -> None:
    shown = offline("server", "generate", str(conf), *FLAGS, "--login", login).ok().out
    secrets = dict(re.findall(r"(Token|Password of \w+): (\S+)", shown))
    text = conf.read_text()
    assert not [secret for secret in secrets.values() if secret in text]
    fields = {
        "none": {},
        "user": {"user": "user", "pass": secrets.get("Password of user")},
        "token": {"auth_token": secrets.get("Token")},
        "accounts": {"user": "app", "pass": secrets.get("Password of app")},
    }[login]
    server = started(kind, conf)
    try:
        with RawClient(server.port) as client:
            client.connect(**fields)
        with RawClient(server.port) as client:
            assert client.info.get("auth_required", False) == (login != "none")
    finally:
        server.stop()


def test_tls_is_checked_before_anything_is_written(offline: Cli, conf: Path) -> None:
    authority = Authority(conf.parent)
    own = authority.server()
    files = ("--tls-cert", own.cert_file, "--tls-key", own.key_file, "--tls-ca", authority.ca_file)
    offline("server", "generate", str(conf), *FLAGS, *files).ok()
    assert "verify: true" in conf.read_text()
    before = conf.read_text()
    wrong = ("--tls-cert", own.cert_file, "--tls-key", authority.ca_file, "--force")
    outcome = offline("server", "generate", str(conf), *FLAGS, *wrong)
    assert outcome.code == EXIT_FAILED
    assert "would not start with this configuration; nothing was written" in outcome.err
    assert conf.read_text() == before
    assert sorted(path.name for path in conf.parent.glob(".*")) == []


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (("--name", "a b"), "--name must have only letters, digits, '-' and '_', not 'a b'"),
        (("--login", "magic"), "--login: one of none, user, token, accounts"),
        (("--account", "$G"), "--account: '$G' cannot be the name"),
        (("--store-dir", 'a"b'), "cannot hold quotes"),
        (("--tls-key", "x"), "need --tls-cert"),
        (("--port", "70000"), "port"),
        (("--max-storage", "lots"), "size"),
    ],
)
def test_wrong_answers_write_nothing(
    offline: Cli, conf: Path, flags: tuple[str, ...], wanted: str
) -> None:
    outcome = offline("server", "generate", str(conf), *FLAGS, *flags)
    assert outcome.code != 0
    assert wanted in outcome.err
    assert not conf.exists()


def test_existing_file_is_replaced_only_if_that_is_wanted(
    offline: Cli, types: Types, conf: Path
) -> None:
    conf.write_text("mine")
    refused = offline("server", "generate", str(conf), *FLAGS)
    assert refused.code == EXIT_USAGE
    assert "--force" in refused.err
    types("n")
    assert offline("server", "generate", str(conf), *FLAGS).code == EXIT_FAILED
    assert conf.read_text() == "mine"
    offline("server", "generate", str(conf), *FLAGS, "--force").ok()
    assert "server_name" in conf.read_text()


def test_nobody_to_ask_names_the_flag(offline: Cli, conf: Path) -> None:
    outcome = offline("server", "generate", str(conf))
    assert outcome.code == EXIT_USAGE
    assert "use --name" in outcome.err
    assert not conf.exists()


def test_standard_output_has_the_file_alone(offline: Cli, conf: Path) -> None:
    outcome = offline("server", "generate", "-", *FLAGS).ok()
    conf.write_text(outcome.out)
    assert "Password of user: " in outcome.err
    server = started("tradewind", conf)
    server.stop()


def test_a_unit_is_written_beside_the_file(offline: Cli, conf: Path) -> None:
    offline("server", "generate", str(conf), "--systemd", "--store-dir", "data", *FLAGS).ok()
    unit = conf.with_suffix(".service").read_text()
    assert "Type=notify" in unit
    assert f"tradewind-server -c {conf}" in unit
    assert f"ReadWritePaths={conf.parent / 'data'}" in unit


def test_a_unit_needs_a_file(offline: Cli, conf: Path) -> None:
    refused = offline("server", "generate", "-", "--systemd", *FLAGS)
    assert refused.code == EXIT_USAGE
    assert "--systemd requires a file" in refused.err
    assert not conf.exists()
