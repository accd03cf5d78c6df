"""A credentials file logs in to a server in operator mode (the official one; ours has none yet)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tradewind
from harness import ServerProcess
from tradewind.client.errors import AuthorizationError
from tradewind.nkeys import KeyPair
from tradewind.spark.errors import OptionError
from tradewind.spark.options.source_options import parse_options
from tradewind.spark.providers.network import ReadAddress

OPERATOR = KeyPair("O", b"o" * 32)
ACCOUNT = KeyPair("A", b"a" * 32)
USER = KeyPair("U", b"u" * 32)
ISSUED = 1_700_000_000


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def make_jwt(issuer: KeyPair, subject: KeyPair, name: str, kind: str, **claims: object) -> str:
    """A token as nsc makes it."""
    body: dict[str, object] = {
        "iat": ISSUED,
        "iss": issuer.public,
        "sub": subject.public,
        "name": name,
        "nats": {"type": kind, "version": 2, **claims},
    }
    digest = hashlib.new("sha512_256", json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    header = json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode()
    text = f"{encode(header)}.{encode(json.dumps(body).encode())}"
    return f"{text}.{encode(issuer.sign(text.encode()))}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1}
    account = make_jwt(OPERATOR, ACCOUNT, "A", "account", limits={**limits, "wildcards": True})
    path = tmp_path_factory.mktemp("operator") / "server.conf"
    path.write_text(
        f"operator: {make_jwt(OPERATOR, OPERATOR, 'O', 'operator')}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {ACCOUNT.public}: {account} }}\n"
    )
    process = ServerProcess("official", ["-a", "127.0.0.1", "-p", "-1", "-c", str(path)])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


def credentials(path: Path, seed: str) -> str:
    user = make_jwt(ACCOUNT, USER, "U", "user", subs=-1, data=-1, payload=-1, pub={}, sub={})
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    return str(path)


async def test_credentials_file_logs_in(server: ServerProcess, tmp_path: Path) -> None:
    file = credentials(tmp_path / "user.creds", USER.seed)
    async with await tradewind.connect(server.url, credentials=file) as connection:
        subscription = await connection.subscribe("a")
        await connection.publish("a", b"in")
        assert (await subscription.next(5)).data == b"in"


async def test_credentials_with_another_key_are_refused(
    server: ServerProcess, tmp_path: Path
) -> None:
    file = credentials(tmp_path / "user.creds", KeyPair("U", b"x" * 32).seed)
    with pytest.raises(AuthorizationError):
        await tradewind.connect(server.url, credentials=file)


async def test_jobs_of_spark_log_in_with_a_jwt(server: ServerProcess, tmp_path: Path) -> None:
    user = make_jwt(ACCOUNT, USER, "U", "user", subs=-1, data=-1, payload=-1, pub={}, sub={})
    (tmp_path / "jwt").write_text(user)
    (tmp_path / "seed").write_text(USER.seed)
    place = {"servers": server.url, "stream": "S"}
    for login in (
        {"userJwt": f"file:{tmp_path}/jwt", "nkeySeed": f"file:{tmp_path}/seed"},
        {"credentials": credentials(tmp_path / "user.creds", USER.seed)},
    ):
        async with ReadAddress(parse_options(place | login)).connected() as connection:
            await connection.flush()
    wrong = place | {"userJwt": user, "nkeySeed": KeyPair("U", b"x" * 32).seed}
    with pytest.raises(OptionError, match="option servers: cannot connect: ") as raised:
        async with ReadAddress(parse_options(wrong)).connected():
            pass
    assert user not in str(raised.value)
