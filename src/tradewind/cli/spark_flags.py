"""What the commands that use Spark share: its master, and the server as Spark is told it.

Owns which of the shared flags Spark's workers can use: they get an address, a context or a
credentials file, and connect by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote

from tradewind.cli.failures import CommandError
from tradewind.cli.frame import Option
from tradewind.cli.settings import current

if TYPE_CHECKING:
    from tradewind.pipelines.connections import Address

MasterFlag = Annotated[
    str, Option("--master", help="Where Spark runs: local[*] is here, spark://HOST:7077 a cluster")
]
_NOT_FOR_SPARK: Final = ("nkey", "jwt", "seed", "tlscert", "tlskey", "tlsca", "js_domain")


def spark_address() -> Address:
    """The server that the flags and the environment name."""
    from tradewind.client.contexts import selected_context
    from tradewind.pipelines.connections import Address

    settings = current()
    for key in _NOT_FOR_SPARK:
        if settings.text(key):
            raise CommandError(
                f"--{key.replace('_', '-')} does not reach Spark's workers",
                "put it into a context and use --context NAME",
            )
    server = settings.text("server")
    user, password, token = (settings.text(key) for key in ("user", "password", "token"))
    login = f"{quote(user, '')}:{quote(password, '')}" if user and password else token or user
    if login:
        urls = (server or "nats://127.0.0.1:4222").split(",")
        server = ",".join(_with_login(url.strip(), login) for url in urls)
    if server:
        return Address(server, "", settings.text("creds"))
    name = settings.context
    return Address("", selected_context() if name == "" else name or "", settings.text("creds"))


def _with_login(url: str, login: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme or 'nats'}{separator or '://'}{login}@{rest.rpartition('@')[2]}"
