"""The common parts of commands that use Spark: its master, and the server address for Spark.

Owns which of the shared flags apply to Spark's workers: they receive an address or a context and a
login, and connect themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Option
from tradewind.cli.frame.settings import current

if TYPE_CHECKING:
    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

MasterFlag = Annotated[
    str,
    Option(
        "--master",
        help="Spark master: local[*,4] for all cores of this machine and four attempts of a task,"
        " spark://HOST:7077 for a cluster",
    ),
]
# By flag, the option of a login that Spark's workers get; a flag of another name sets none.
_LOGIN: Final = {
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "credentials",
    "nkey": "nkey_file",
    "jwt": "user_jwt",
    "seed": "nkey_seed",
    "tlscert": "tls_cert_file",
    "tlskey": "tls_key_file",
    "tlsca": "tls_ca_file",
    "js_domain": "jetstream_domain",
}
_NOT_FOR_SPARK: Final = ("js_api_prefix", "inbox_prefix")


def spark_address() -> PipelineAddress:
    """The server and the login that the flags and the environment name."""
    from tradewind.client.core.contexts import selected_context
    from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
    from tradewind.spark.connections.logins import JobLogin

    settings = current()
    for key in _NOT_FOR_SPARK:
        if settings.text(key):
            raise CommandError(
                f"--{key.replace('_', '-')} is not passed on to Spark's workers",
                "put it into a context and use --context NAME",
            )
    given = {option: settings.text(flag) for flag, option in _LOGIN.items()}
    if given["user"] and not given["password"]:
        # The command line takes a user without a password for a token.
        given |= {"token": given["token"] or given["user"], "user": ""}
    login = JobLogin(**given, tls_handshake_first="true" if settings.is_on("tlsfirst") else "")
    server = settings.text("server")
    if server:
        return PipelineAddress(server, "", login)
    name = settings.context
    return PipelineAddress("", selected_context() if name == "" else name or "", login)
