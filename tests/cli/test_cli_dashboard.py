"""The flags of `tradewind dashboard`, and what it says when they do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_outcome import Cli
from tradewind.dashboard.web.serving import DashboardSettings
from tradewind.errors import ConfigError


def test_another_address_demands_tls_or_a_word(offline: Cli) -> None:
    outcome = offline("dashboard", "--host", "0.0.0.0", "--port", "0")
    assert outcome.code == 1
    assert "--https-cert" in outcome.err
    assert "--plain-http" in outcome.err


def test_a_certificate_needs_its_key(offline: Cli) -> None:
    outcome = offline("dashboard", "--https-cert", "x.pem", "--port", "0")
    assert outcome.code == 1
    assert "--https-key" in outcome.err


def test_a_certificate_that_is_not_there_is_named(offline: Cli) -> None:
    outcome = offline("dashboard", "--https-cert", "x.pem", "--https-key", "y.pem", "--port", "0")
    assert outcome.code == 1
    assert "--https-cert" in outcome.err


def test_a_port_that_is_taken_is_named(offline: Cli) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = offline("dashboard", "--port", str(port))
    assert outcome.code == 1
    assert str(port) in outcome.err


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_loopback_needs_no_login(host: str) -> None:
    assert not DashboardSettings(host=host).asks_login


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "nats.example"])
def test_other_addresses_always_ask_for_a_login(host: str) -> None:
    settings = DashboardSettings(host=host, allow_plain_http=True)
    assert settings.asks_login
    assert host in settings.policy().names
    with pytest.raises(ConfigError, match="--https-cert"):
        DashboardSettings(host=host)


NOWHERE = "nats://127.0.0.1:1"


def test_the_demo_takes_another_port_if_that_of_the_dashboard_is_taken(tmp_path: Path) -> None:
    import socket

    from tradewind.cli.spark.demo import _open_dashboard

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with _open_dashboard(NOWHERE, NOWHERE, port=port, pipeline=tmp_path) as url:
            assert url.startswith("http://127.0.0.1:")
            assert not url.endswith(f":{port}/")
