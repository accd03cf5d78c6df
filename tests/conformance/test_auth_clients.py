"""The public Python client logs in with each method, and learns of a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from helpers_ops import shared_server, user_key
from nats.aio.client import Client

from harness import ServerProcess

KEY = user_key(7)
SECONDS = 20

by_token = shared_server("authorization { token: tok }")
by_user = shared_server("authorization { users: [ {user: anna, password: secret} ] }")
by_key = shared_server(f"authorization {{ users: [ {{ nkey: {KEY.public} }} ] }}")


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:
    client = await nats.connect(url, allow_reconnect=False, connect_timeout=SECONDS, **options)
    try:
        yield client
    finally:
        await client.close()


async def assert_answers(client: Client) -> None:
    async def reply(message: Any) -> None:
        await message.respond(b"pong:" + message.data)

    await client.subscribe("service", cb=reply)
    answer = await client.request("service", b"1", timeout=SECONDS)
    assert answer.data == b"pong:1"


def with_credentials(server: ServerProcess, credentials: str) -> str:
    return f"nats://{credentials}@127.0.0.1:{server.port}"


async def test_token_as_option(by_token: ServerProcess) -> None:
    async with connected(by_token.url, token="tok") as client:
        await assert_answers(client)


async def test_token_in_the_url(by_token: ServerProcess) -> None:
    async with connected(with_credentials(by_token, "tok")) as client:
        await assert_answers(client)


async def test_user_and_password_as_options(by_user: ServerProcess) -> None:
    async with connected(by_user.url, user="anna", password="secret") as client:
        await assert_answers(client)


async def test_user_and_password_in_the_url(by_user: ServerProcess) -> None:
    async with connected(with_credentials(by_user, "anna:secret")) as client:
        await assert_answers(client)


async def test_nkey_seed_file(by_key: ServerProcess, tmp_path: Path) -> None:
    seed = tmp_path / "user.nk"
    seed.write_bytes(KEY.seed)
    async with connected(by_key.url, nkeys_seed=str(seed)) as client:
        await assert_answers(client)


@pytest.mark.parametrize(
    "options",
    [{"user": "anna", "password": "bad"}, {}, {"token": "secret"}],
    ids=["bad", "none", "token"],
)
async def test_refused_login_raises_the_servers_words(
    by_user: ServerProcess, options: dict[str, Any]
) -> None:
    client = Client()
    try:
        with pytest.raises(nats.errors.Error, match="Authorization Violation"):
            await client.connect(
                by_user.url, allow_reconnect=False, connect_timeout=SECONDS, **options
            )
    finally:
        await client.close()
