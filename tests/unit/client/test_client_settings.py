"""Addresses, options, headers and credentials: what is accepted, and what the errors say."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tradewind
from certificates import Authority
from tradewind.client.core.addresses import Address, ServerPool, parse_address, parse_servers
from tradewind.client.core.connect_options import ConnectOptions, ConnectSettings, make_options
from tradewind.client.core.credentials import login_fields
from tradewind.client.core.headers import Headers, decode_headers, encode_headers
from tradewind.client.core.nuid import Nuid
from tradewind.client.errors import (
    AuthorizationError,
    BadHeaderError,
    CredentialsError,
    OptionsError,
    PermissionsError,
    error_from_wire,
)
from tradewind.errors import TradewindError
from tradewind.nkeys import KeyPair, decode_public, verify

KEY = KeyPair("U", bytes(range(32)))
HERE = Address("nats", "127.0.0.1", 4222)


@pytest.mark.parametrize(
    ("text", "url", "login"),
    [
        ("127.0.0.1", "nats://127.0.0.1:4222", ("", "")),
        ("host:1234", "nats://host:1234", ("", "")),
        ("nats://a:b%40c@host", "nats://host:4222", ("a", "b@c")),
        ("tls://[::1]:99", "tls://[::1]:99", ("", "")),
        ("ws://host/path", "ws://host:80/path", ("", "")),
        ("wss://token@host", "wss://host:443", ("token", "")),
    ],
)
def test_urls_of_servers(text: str, url: str, login: tuple[str, str]) -> None:
    address = parse_address(text)
    assert (address.url, (address.user, address.password)) == (url, login)


@pytest.mark.parametrize("text", ["http://host", "nats://", "nats://host:99999", "nats://host:x"])
def test_wrong_urls_are_named(text: str) -> None:
    with pytest.raises(OptionsError, match="server url"):
        parse_address(text)


def test_passwords_of_urls_are_never_shown() -> None:
    for text in (
        "http://user:secret@host",
        "user:secret@host:x",  # without a scheme
        "nats://user:se/secret@host:x",  # the password has what ends a host
        "nats://user:a@secret@host:x",
    ):
        with pytest.raises(OptionsError) as caught:
            parse_address(text)
        assert "secret" not in str(caught.value)
    assert "secret" not in repr(parse_address("nats://user:secret@host"))
    assert "secret" not in repr(ConnectOptions(password="secret", token="secret"))


def test_lists_of_servers() -> None:
    assert [address.port for address in parse_servers("a:1, b:2")] == [1, 2]
    assert [address.port for address in parse_servers(["a:1", "b:2"])] == [1, 2]
    for wrong in ("", [], ["ws://a", "nats://b"], ["a"] * 2000):
        with pytest.raises(OptionsError, match="servers"):
            parse_servers(wrong)


def test_pool_takes_note_of_discovered_servers_and_forgets_them() -> None:
    configured = parse_servers("a:1,b:2")
    pool = ServerPool(configured, randomize=False)
    new = pool.discovered(["c:3", "a:1", "not a url:x"], configured[0], secure=False)
    assert [address.url for address in new] == ["nats://c:3"]
    assert not pool.discovered(["c:3"], configured[0], secure=False)
    pool.move_to_end(configured[0])
    assert [address.port for address in pool.servers] == [2, 3, 1]
    pool.discovered([], configured[0], secure=False)
    assert [address.port for address in pool.servers] == [2, 1]


def test_numbers_of_the_program_stay_its_own() -> None:
    """It may have seeded `random`; a client that takes from it would change what follows."""
    before = random.getstate()
    ServerPool(parse_servers(["nats://a", "nats://b", "nats://c"]), randomize=True)
    assert random.getstate() == before


def test_pool_in_random_order_has_everyone() -> None:
    addresses = parse_servers([f"h{number}" for number in range(50)])
    pool = ServerPool(addresses, randomize=True)
    assert pool.servers != addresses
    assert sorted(pool.servers, key=repr) == sorted(addresses, key=repr)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"timeout": 0}, "timeout: more than 0 seconds"),
        ({"ping_interval": -1}, "ping_interval"),
        ({"pending_bytes_max": 0}, "pending_bytes_max: at least 1"),
        ({"inbox_prefix": "a.*"}, "inbox_prefix: a subject without wildcards"),
        ({"credentials": "a", "nkey_seed": "b"}, "credentials and nkey_seed: use only one"),
        ({"tls_cert_file": "a"}, "specify both or neither"),
        ({"nam": "x"}, "did you mean 'name'"),
        ({"timeout": "5"}, "^timeout must be a number of seconds, not str$"),
        ({"timeout": True}, "^timeout must be a number of seconds, not bool$"),
        ({"timeout": None}, "^timeout must be a number of seconds, not NoneType$"),
        ({"ping_interval": float("nan")}, "^ping_interval: more than 0 seconds, not nan$"),
        ({"pings_unanswered_max": 2.5}, "^pings_unanswered_max must be a whole number, not float$"),
        ({"reconnect_attempts_max": "x"}, "^reconnect_attempts_max must be a whole number or None"),
        ({"echo": 1}, "^echo must be True or False, not int$"),
        ({"password": 12345}, "^password must be a text, not int$"),
    ],
)
def test_wrong_options_are_named(settings: dict[str, object], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        make_options(ConnectOptions(), settings)


def test_typed_settings_are_those_of_the_options() -> None:
    names = {field.name for field in fields(ConnectOptions)} - {"servers"}
    assert set(ConnectSettings.__annotations__) == names


# ---------------------------------------------------------------------- credentials


async def test_cve_2020_26149_connect_tells_the_server_no_other_settings(tmp_path: Path) -> None:
    """Neither keys, nor where they are, nor anything else that is for the client alone."""
    authority = Authority(tmp_path)
    own, mine = authority.server("localhost"), authority.client("me")
    received = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"nonce":"n","headers":true,"tls_required":true}\r\n')
        received.set_result(await reader.readline())
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own.cert_file, own.key_file)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        with pytest.raises(TradewindError):
            await tradewind.connect(
                f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}",
                name="n", nkey_seed=KEY.seed, tls_handshake_first=True, tls_hostname="localhost",
                tls_ca_file=authority.ca_file, tls_cert_file=mine.cert_file,
                tls_key_file=mine.key_file, reconnect_attempts_max=0,
            )  # fmt: skip
    line = await received
    fields = json.loads(line.removeprefix(b"CONNECT "))
    assert fields.keys() == {
        "verbose", "pedantic", "protocol", "headers", "no_responders", "echo", "lang", "version",
        "name", "tls_required", "nkey", "sig",
    }  # fmt: skip
    for secret in (KEY.seed, mine.key_file, mine.cert_file, authority.ca_file):
        assert secret.encode() not in line


def check_signature(connect: dict[str, str], nonce: bytes) -> None:
    signature = base64.urlsafe_b64decode(connect["sig"] + "==")
    assert verify(decode_public(KEY.public)[1], nonce, signature)


def test_seed_signs_the_nonce() -> None:
    connect = login_fields(ConnectOptions(nkey_seed=KEY.seed), HERE, "nonce")
    assert connect["nkey"] == KEY.public
    check_signature(connect, b"nonce")


def test_credentials_file(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\nthe.jwt.text\n------END NATS USER JWT------\n\n"
        f"IMPORTANT\n\n-----BEGIN USER NKEY SEED-----\n{KEY.seed}\n------END USER NKEY SEED------\n"
    )
    connect = login_fields(ConnectOptions(credentials=str(path)), HERE, "nonce")
    assert connect["jwt"] == "the.jwt.text"
    assert "nkey" not in connect
    check_signature(connect, b"nonce")


@pytest.mark.parametrize(
    ("option", "content", "text"),
    [
        ("credentials", "", "BEGIN NATS USER JWT"),
        ("credentials", "-----BEGIN NATS USER JWT-----\nx\n-----END NATS USER JWT-----", "SEED"),
        ("nkey_file", "no seed here", "holds no nkey seed"),
        ("nkey_file", KEY.seed[:-1] + "A", "checksum"),
    ],
)
def test_wrong_credentials_say_what_is_missing(
    tmp_path: Path, option: str, content: str, text: str
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    options = make_options(ConnectOptions(), {option: str(path)})
    with pytest.raises(CredentialsError, match=text) as caught:
        login_fields(options, HERE, "nonce")
    assert KEY.seed[:-1] not in str(caught.value)


def test_login_of_the_url_counts_more() -> None:
    options = ConnectOptions(user="a", password="b")
    assert login_fields(options, parse_address("c:d@h"), "") == {"user": "c", "pass": "d"}
    assert login_fields(options, parse_address("t@h"), "") == {"auth_token": "t"}
    assert login_fields(options, HERE, "") == {"user": "a", "pass": "b"}


# ---------------------------------------------------------------------- headers, ids, errors

NAME = st.text("abcXYZ-_", min_size=1, max_size=8)
VALUE = st.text("abc äöü:;,=", max_size=12).map(str.strip)


@pytest.mark.slow
@given(st.lists(st.tuples(NAME, VALUE), max_size=8))
def test_headers_survive_the_wire(pairs: list[tuple[str, str]]) -> None:
    headers = Headers(pairs)
    decoded = decode_headers(encode_headers(headers))
    assert decoded == headers
    for name in headers:
        expected = [value for other, value in pairs if other == name]
        assert decoded.get_all(name) == expected
        assert decoded[name] == expected[0]


def test_header_names_keep_their_case() -> None:
    headers = Headers({"Trace": "1"})
    headers.add("trace", "2")
    headers["Other"] = ["3", "4"]
    assert (headers["Trace"], headers["trace"], headers.get("TRACE")) == ("1", "2", None)
    headers.remove("trace")
    del headers["Trace"]
    assert list(headers.fields()) == [("Other", "3"), ("Other", "4")]


@pytest.mark.parametrize(
    ("name", "value"), [("", "v"), ("a:b", "v"), ("a b", "v"), ("a\r\n", "v"), ("a", "v\r\nb: c")]
)
def test_headers_that_would_break_the_block_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadHeaderError):
        encode_headers({name: value})
    with pytest.raises(BadHeaderError):
        encode_headers({"a": 5})  # type: ignore[dict-item]


FORK_PROGRAM = """
import os
from tradewind.client.core.replies import nuid

ours = nuid.next()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, nuid.next().encode())
    os._exit(0)
theirs = os.read(reader, 100).decode()
assert len(theirs) == 22
assert theirs[:12] != ours[:12] == nuid.next()[:12]
"""


def test_ids_of_a_forked_process_are_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK_PROGRAM], check=True, timeout=60)


def test_ids_are_unique_and_of_the_common_form() -> None:
    nuid = Nuid()
    ids = [nuid.next() for _ in range(10_000)]
    assert len(set(ids)) == 10_000
    assert all(len(text) == 22 and text.isalnum() for text in ids)


def test_errors_of_the_server_have_classes() -> None:
    assert isinstance(error_from_wire("Authorization Violation"), AuthorizationError)
    assert isinstance(error_from_wire('Permissions Violation for Publish to "a"'), PermissionsError)
    other = error_from_wire("Something New")
    assert (other.wire_text, str(other)) == ("Something New", "the server reports: Something New")
    assert isinstance(other, TradewindError)
