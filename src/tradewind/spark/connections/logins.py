"""Logins of Spark jobs: the client's options, and references to secrets instead of secrets.

Owns the names of these options and where a value comes from. A value is the text itself or a
reference, `env:NAME` or `file:PATH`. A reference is never resolved in plans, options or anything
that is transferred; the connecting process, a driver or an executor, resolves it each time it
connects. An error names the option and the reference, never a value.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from tradewind.client.core.credentials import find_seed, parse_credentials
from tradewind.client.errors import CredentialsError
from tradewind.nkeys import KeyPair, NkeyError
from tradewind.spark.errors import OptionError

DEFAULT_SERVER: Final = "nats://127.0.0.1:4222"
SECRET_BYTES_MAX: Final = 1 << 20
_ENVIRONMENT: Final = "env:"
_FILE: Final = "file:"
_SETTING: Final = "conf:"
_PATHS: Final = ("credentials", "nkey_file", "tls_ca_file", "tls_cert_file", "tls_key_file")
_SWITCHES: Final = ("tls_handshake_first",)


@dataclass(frozen=True, slots=True)
class JobLogin:
    """The options of `tradewind.connect` of the same names, as they were given."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey_seed: str = field(default="", repr=False)
    nkey_file: str = ""
    credentials: str = ""
    user_jwt: str = field(default="", repr=False)
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_hostname: str = ""
    tls_handshake_first: str = ""
    jetstream_domain: str = ""

    def __bool__(self) -> bool:
        return self != _NOTHING

    def given(self) -> dict[str, str]:
        """The given settings, by the names of the client."""
        return {name: text for name in LOGIN_FIELDS if (text := getattr(self, name))}

    def check(self, spell: Callable[[str], str] = str) -> None:
        """Check what does not depend on references; `spell` returns the names for errors."""
        given = self.given()
        for name, text in given.items():
            _check_reference(spell(name), name, text)
        keys = [name for name in ("credentials", "nkey_file", "nkey_seed") if name in given]
        if len(keys) > 1:
            raise OptionError(spell(keys[1]), f"use {spell(keys[0])} or this, not both")
        for one, other in (
            ("password", "user"),
            ("user_jwt", "nkey_seed"),
            ("tls_cert_file", "tls_key_file"),
            ("tls_key_file", "tls_cert_file"),
        ):
            if one in given and other not in given:
                raise OptionError(spell(one), f"{spell(other)} is missing: both are required")

    def settings(self, spell: Callable[[str], str] = str) -> dict[str, Any]:
        """The arguments of `connect`, with what the references stand for here and now."""
        found: dict[str, Any] = {
            name: resolve(spell(name), text) for name, text in self.given().items()
        }
        for name in _SWITCHES:
            if name in found:
                found[name] = found[name].lower() == "true"
        _check_files(found, self, spell)
        if "nkey_seed" in found:
            try:
                KeyPair.from_seed(found["nkey_seed"])
            except NkeyError as error:
                raise OptionError(
                    spell("nkey_seed"), f"{_shown(self.nkey_seed)} is not an nkey seed: {error}"
                ) from None
        if is_reference(self.token):
            # Looked up again for each login, so that a renewed one is used.
            found["token"] = partial(resolve, spell("token"), self.token)
        return found


_NOTHING: Final = JobLogin()
LOGIN_FIELDS: Final = tuple(one.name for one in fields(JobLogin))


def spark_name(name: str) -> str:
    """The name of an option in Spark's way of writing: nkeySeed."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


_BY_SPARK_NAME: Final = {spark_name(name).lower(): name for name in LOGIN_FIELDS}


def split_login(given: Mapping[str, str]) -> tuple[JobLogin, dict[str, str]]:
    """The login among the options of a read or write, and all other options."""
    login: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, text in given.items():
        target = _BY_SPARK_NAME.get(name.lower())
        if target is None:
            others[name] = text
            continue
        login[target] = str(text).strip()
        if not login[target]:
            raise OptionError(spark_name(target), "it is empty")
    made = JobLogin(**login)
    made.check(spark_name)
    return made, others


def is_reference(text: str) -> bool:
    """Whether a value stands for another one."""
    return text.startswith((_ENVIRONMENT, _FILE))


def resolve(option: str, text: str) -> str:
    """The value that a text stands for in this process; OptionError names the option and the
    reference.
    """
    if text.startswith(_ENVIRONMENT):
        name = text.removeprefix(_ENVIRONMENT)
        if not (found := os.environ.get(name, "").strip()):
            state = "empty" if name in os.environ else "not set"
            raise OptionError(
                option,
                f"{text}: the variable is {state} where it is used; a driver has the environment"
                f" that Spark was started with, executors get spark.executorEnv.{name}",
            )
        return found
    if text.startswith(_FILE):
        found = _read(option, text, Path(text.removeprefix(_FILE))).strip()
        if not found:
            raise OptionError(option, f"{text}: the file is empty")
        return found
    return text


def resolve_servers(servers: Sequence[str]) -> list[str]:
    """The addresses; a reference may stand for several, joined by commas."""
    return [
        part.strip()
        for server in servers
        for part in resolve("servers", server).split(",")
        if part.strip()
    ]


def _check_reference(option: str, name: str, text: str) -> None:
    if text.startswith(_SETTING):
        raise OptionError(
            option,
            "Spark's settings do not reach the Python processes that connect; use env:NAME, which"
            " executors get by spark.executorEnv.NAME, or file:PATH",
        )
    if text in (_ENVIRONMENT, _FILE):
        raise OptionError(option, f"{text} names nothing; env:NAME or file:PATH")
    if name in _PATHS and text.startswith(_FILE):
        raise OptionError(option, f"it is a path: write {text.removeprefix(_FILE)}, not {text}")
    if name in _SWITCHES and text.lower() not in ("true", "false"):
        raise OptionError(option, "expected true or false")


def _shown(text: str) -> str:
    """A value in an error: what it refers to, but never a secret itself."""
    return text if is_reference(text) else "what was given"


def _read(option: str, shown: str, path: Path) -> str:
    try:
        with path.expanduser().open("rb") as file:
            content = file.read(SECRET_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OptionError(option, f"{shown} cannot be read: {reason}") from None
    if len(content) > SECRET_BYTES_MAX:
        raise OptionError(option, f"{shown} has more than {SECRET_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise OptionError(option, f"{shown} is not text") from None


def _check_files(found: Mapping[str, Any], login: JobLogin, spell: Callable[[str], str]) -> None:
    """Files that do not do are named by their option before a server is asked."""
    for name in _PATHS:
        if name not in found:
            continue
        option, shown = spell(name), getattr(login, name)
        content = _read(option, shown, Path(found[name]))
        try:
            if name == "credentials":
                KeyPair.from_seed(parse_credentials(content)[1])
            elif name == "nkey_file":
                KeyPair.from_seed(find_seed(content, "it"))
            elif name == "tls_ca_file":
                _context().load_verify_locations(Path(found[name]).expanduser())
        except (CredentialsError, NkeyError) as error:
            raise OptionError(option, f"{shown}: {error}") from None
        except ssl.SSLError:
            raise OptionError(option, f"{shown} has no certificates in PEM") from None
    if "tls_cert_file" not in found:
        return
    cert, key = (str(Path(found[f"tls_{name}_file"]).expanduser()) for name in ("cert", "key"))
    try:
        # Without the function OpenSSL would ask for the password of a key on the terminal.
        _context().load_cert_chain(cert, key, lambda: "")
    except ssl.SSLError as error:
        raise OptionError(
            spell("tls_cert_file"),
            f"{login.tls_cert_file} and {login.tls_key_file} are not a certificate and its"
            f" unencrypted key in PEM: {error.reason or 'they cannot be read'}",
        ) from None


def _context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
