"""The block `jetstream.remotes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.errors import ConfigError
from tradewind.options import GLOBAL_ACCOUNT, RemoteOptions, ServerOptions
from tradewind.server.config.checks import check_options
from tradewind.server.config.load import load_config_file


def load(folder: Path, remotes: str, rest: str = "") -> ServerOptions:
    file = folder / "server.conf"
    file.write_text(f"jetstream {{\n domain: here\n remotes {{\n{remotes}\n}}\n}}\n{rest}\n")
    options = load_config_file(str(file), {}).options
    check_options(options)
    return options


def one(folder: Path, text: str) -> RemoteOptions:
    (remote,) = load(folder, f"hub {{ {text} }}").jetstream.remotes
    return remote


def test_a_url_is_enough(tmp_path: Path) -> None:
    remote = one(tmp_path, 'url: "nats://hub.example.com"')
    assert (remote.name, remote.prefix, remote.account) == ("hub", "$JS.hub.API", GLOBAL_ACCOUNT)
    assert [url.reveal() for url in remote.urls] == ["nats://hub.example.com"]


def test_all_keys(tmp_path: Path) -> None:
    remote = one(
        tmp_path,
        'urls: ["tls://a:1", "b:2"], prefix: "ORDERS.API", domain: far, user: u, pass: "p w",\n'
        'tls { ca_file: "ca.pem", hostname: a, first: true }',
    )
    assert len(remote.urls) == 2
    assert (remote.prefix, remote.domain) == ("ORDERS.API", "far")
    assert (remote.user, remote.password.reveal()) == ("u", "p w")
    assert remote.tls is not None
    assert (remote.tls.ca_file, remote.tls.hostname, remote.tls.handshake_first) == (
        "ca.pem",
        "a",
        True,
    )


def test_no_login_is_in_a_text_of_the_options(tmp_path: Path) -> None:
    remote = one(tmp_path, 'url: "nats://me:hidden1@a", token: "hidden2"')
    assert "hidden" not in repr(remote)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 'remotes.hub needs a url, such as "nats://hub.example.com:4222"'),
        ('url: "http://a"', "must start with one of nats, tls, ws, wss, not 'http'"),
        ('url: "nats://u:secret@a:b"', "the port must be a number up to 65535"),
        ("urls: []", "urls must not be empty"),
        ('url: "a", prefix: "a.*"', "prefix 'a.*' must be a subject without wildcards"),
        (
            'url: "a", prefix: "$JS.API"',
            "prefix '$JS.API' must not be the prefix of this server's own API",
        ),
        ('url: "a", prefix: "$JS.here.API"', "is the prefix of this server's own domain"),
        ('url: "a", domain: "a.b"', "domain 'a.b' must be one token of a subject"),
        ('url: "a", user: u, token: t', "has user and token: use only one of them"),
        ('url: "a", password: p', "has a password and no user"),
        ('url: "a", tls { cert_file: c }', "has only one of cert_file and key_file"),
        ('url: "a", tls { insecure: true }', "insecure"),
        ('url: "a", acount: A', "acount"),
        ('url: "a", account: A', "account 'A' is not defined under accounts"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one(tmp_path, text)
    assert error in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_name_is_one_token(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"remotes\.a\.b: a name must not contain '\.'"):
        load(tmp_path, '"a.b" { url: "a" }')


def test_each_account_has_remotes_of_its_own(tmp_path: Path) -> None:
    accounts = "accounts { A { jetstream: true }, B { jetstream: true } }"
    remotes = 'one { url: "a", account: A, prefix: p }\n two { url: "b", account: %s, prefix: p }'
    assert len(load(tmp_path, remotes % "B", accounts).jetstream.remotes) == 2
    with pytest.raises(ConfigError, match="prefix 'p' is already used by remote 'one'"):
        load(tmp_path, remotes % "A", accounts)
    with pytest.raises(ConfigError, match=r"account '\$G' is not defined under accounts"):
        load(tmp_path, 'one { url: "a" }', accounts)
