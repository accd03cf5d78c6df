"""Logins of Spark jobs: what a reference stands for, and errors that never show a value."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import Authority, write_key
from tradewind.nkeys import KeyPair
from tradewind.spark.connections.logins import (
    LOGIN_FIELDS,
    SECRET_BYTES_MAX,
    JobLogin,
    resolve,
    resolve_servers,
    spark_name,
    split_login,
)
from tradewind.spark.errors import OptionError
from tradewind.spark.options.sink_options import parse_sink_options
from tradewind.spark.options.source_options import parse_options

SECRET = "hunter2"
SEED = str(KeyPair("U", b"s" * 32).seed)


def test_options_have_the_names_of_the_client_in_any_case() -> None:
    given = {"NKEYSEED": "env:SEED", "userJwt": "file:/jwt", "jetstreamDomain": "hub", "x": "1"}
    login, others = split_login(given)
    assert login.given() == {
        "nkey_seed": "env:SEED",
        "user_jwt": "file:/jwt",
        "jetstream_domain": "hub",
    }
    assert others == {"x": "1"}


def test_readers_and_writers_take_the_same_login() -> None:
    given = {"servers": "nats://h", "stream": "S", "user": "ann", "password": "env:PW"}
    expected = JobLogin(user="ann", password="env:PW")
    assert parse_options(given).login == expected
    assert parse_sink_options(given).login == expected
    assert parse_sink_options(given).address.login == expected


def test_no_secret_is_in_what_is_printed() -> None:
    given = {"servers": f"nats://u:{SECRET}@h", "stream": "S", "token": SECRET, "user": "u"}
    given |= {"password": SECRET, "nkeySeed": SECRET, "userJwt": SECRET}
    for options in (parse_options(given), parse_sink_options(given)):
        assert SECRET not in repr(options)


def test_a_reference_is_looked_up_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pw").write_text(f"{SECRET}\n")
    monkeypatch.setenv("SPARK_TEST_USER", " ann ")
    monkeypatch.setenv("SPARK_TEST_URLS", "nats://a, nats://b,")
    login = JobLogin(user="env:SPARK_TEST_USER", password=f"file:{tmp_path}/pw")
    travelled = pickle.dumps(login)
    assert SECRET.encode() not in travelled
    assert pickle.loads(travelled).settings() == {"user": "ann", "password": SECRET}
    assert resolve_servers(["env:SPARK_TEST_URLS", "nats://c"]) == [
        "nats://a",
        "nats://b",
        "nats://c",
    ]


def test_a_token_is_looked_up_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    token = JobLogin(token=f"file:{file}").settings()["token"]
    assert token() == "first"
    file.write_text("second")
    assert token() == "second"


def test_a_switch_is_true_or_false() -> None:
    assert JobLogin(tls_handshake_first="True").settings() == {"tls_handshake_first": True}
    assert JobLogin(tls_handshake_first="false").settings() == {"tls_handshake_first": False}
    with pytest.raises(OptionError, match="option tlsHandshakeFirst: expected true or false"):
        split_login({"tlsHandshakeFirst": "maybe"})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"password": SECRET}, "option password: user is missing: both are required"),
        ({"userJwt": SECRET}, "option userJwt: nkeySeed is missing"),
        ({"tlsCertFile": "c"}, "option tlsCertFile: tlsKeyFile is missing"),
        ({"tlsKeyFile": "k"}, "option tlsKeyFile: tlsCertFile is missing"),
        ({"credentials": "c", "nkeySeed": SECRET}, "option nkeySeed: use credentials or this"),
        ({"token": "conf:spark.token"}, "option token: Spark's settings do not reach"),
        ({"token": "env:"}, "option token: env: names nothing"),
        ({"token": ""}, "option token: it is empty"),
        ({"credentials": "file:/x"}, "option credentials: it is a path: write /x, not file:/x"),
    ],
)
def test_what_is_wrong_by_itself_is_told_at_once(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(text)) as raised:
        split_login(given)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("name", LOGIN_FIELDS)
def test_a_variable_that_is_not_set_is_named(name: str) -> None:
    login = JobLogin(**{name: "env:NO_SUCH_VARIABLE"})
    wanted = f"option {spark_name(name)}: env:NO_SUCH_VARIABLE: the variable is not set"
    with pytest.raises(OptionError, match=wanted):
        login.settings(spark_name)


def test_files_that_hold_no_secret_are_named(tmp_path: Path) -> None:
    def told(content: bytes | None) -> str:
        file = tmp_path / "secret"
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(OptionError) as raised:
            resolve("password", f"file:{file}")
        return str(raised.value).replace(str(file), "F")

    assert told(None) == "option password: file:F cannot be read: No such file or directory"
    assert told(b" \n") == "option password: file:F: the file is empty"
    assert told(b"\xff") == "option password: file:F is not text"
    assert told(b"x" * (SECRET_BYTES_MAX + 1)).endswith(f"has more than {SECRET_BYTES_MAX} bytes")
    with pytest.raises(OptionError, match="cannot be read: Is a directory"):
        resolve("password", f"file:{tmp_path}")


def test_a_seed_that_is_none_is_told_without_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = SEED[:-1] + ("A" if SEED[-1] != "A" else "B")
    monkeypatch.setenv("SPARK_TEST_SEED", wrong)
    file = tmp_path / "seed"
    file.write_text(wrong)
    for login, text in (
        (
            JobLogin(nkey_seed="env:SPARK_TEST_SEED"),
            "nkeySeed: env:SPARK_TEST_SEED is not an nkey seed",
        ),
        (JobLogin(nkey_seed=wrong), "nkeySeed: what was given is not an nkey seed"),
        (JobLogin(nkey_file=str(file)), f"nkeyFile: {file}: "),
        (JobLogin(credentials=str(file)), f"credentials: {file}: "),
    ):
        with pytest.raises(OptionError, match=f"option {text}") as raised:
            login.settings(spark_name)
        assert wrong not in str(raised.value)
    assert JobLogin(nkey_seed=SEED).settings() == {"nkey_seed": SEED}


def test_tls_files_that_do_not_do_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.client()
    other = authority.client("other")
    locked = tmp_path / "locked.key"
    write_key(locked, ec.generate_private_key(ec.SECP256R1()), b"pw")
    text = tmp_path / "text"
    text.write_text("no certificate")
    good = JobLogin(
        tls_ca_file=authority.ca_file, tls_cert_file=client.cert_file, tls_key_file=client.key_file
    )
    assert good.settings() == good.given()
    for login, wanted in (
        (JobLogin(tls_ca_file=str(text)), f"tlsCaFile: {text} has no certificates in PEM"),
        (JobLogin(tls_ca_file="/none"), "tlsCaFile: /none cannot be read"),
        (
            JobLogin(tls_cert_file=client.cert_file, tls_key_file="/none"),
            "tlsKeyFile: /none cannot",
        ),
        (
            JobLogin(tls_cert_file=client.cert_file, tls_key_file=other.key_file),
            f"tlsCertFile: {client.cert_file} and {other.key_file} are not a certificate and its",
        ),
        (
            JobLogin(tls_cert_file=client.cert_file, tls_key_file=str(locked)),
            f"tlsCertFile: {client.cert_file} and {locked} are not a certificate and its unencr",
        ),
    ):
        with pytest.raises(OptionError, match=re.escape(f"option {wanted}")):
            login.settings(spark_name)


def test_addresses_with_a_password_are_in_no_error() -> None:
    given = {"stream": "S", "servers": f"nats://u:{SECRET}@h,,"}
    for parse in (parse_options, parse_sink_options):
        with pytest.raises(OptionError, match="option servers: it has an empty part") as raised:
            parse(given)
        assert SECRET not in str(raised.value)
