"""The `jetstream.remotes` block: servers whose streams can be mirrored and sourced.

Owns its keys. It never checks whether the accounts it names exist; `checks` does, once the whole
file is read.
"""

from __future__ import annotations

from tradewind.api.names import is_valid_name
from tradewind.client.core.addresses import parse_address
from tradewind.client.errors import OptionsError
from tradewind.errors import ConfigError
from tradewind.options import RemoteOptions, RemoteTlsOptions, Secret
from tradewind.server.config.reader import (
    Reader,
    Table,
    expect,
    fault,
    ignored,
    seconds,
    secret,
    text,
    texts,
    truth,
)
from tradewind.server.config.tree import ConfigNode
from tradewind.subjects import collide, is_valid_literal


def read_remotes(reader: Reader, node: ConfigNode, key: str) -> tuple[RemoteOptions, ...]:
    """The options of all remotes, in the order of the file."""
    found = []
    for name, child in expect(node, key, dict, "a block with a block for each server").items():
        try:
            found.append(_remote(reader, child, f"{key}.{name}", name))
        except ConfigError as error:
            reader.errors.append(error)
    return tuple(found)


def _remote(reader: Reader, node: ConfigNode, key: str, name: str) -> RemoteOptions:
    if not is_valid_name(name):
        raise fault(node, f"{key}: a name must not contain '.', '*', '>', '/' or spaces")

    def tls(child: ConfigNode, what: str) -> RemoteTlsOptions:
        return read_remote_tls(reader, child, what)

    urls = ("urls", _urls)
    user, password = ("user", text), ("password", secret)
    credentials, prefix = ("credentials", text), ("prefix", _prefix)
    fields = reader.fields(
        node,
        key,
        {
            "url": urls,
            "urls": urls,
            "prefix": prefix,
            "account": ("account", text),
            "domain": ("domain", _domain),
            "user": user,
            "username": user,
            "password": password,
            "pass": password,
            "token": ("token", secret),
            "nkey": ("nkey_file", text),
            "credentials": credentials,
            "creds": credentials,
            "tls": ("tls", tls),
        },
    )
    if "urls" not in fields:
        raise fault(node, f'{key} needs a url, such as "nats://hub.example.com:4222"')
    logins = [field for field in ("user", "token", "nkey_file", "credentials") if fields.get(field)]
    if len(logins) > 1:
        shown = " and ".join(login.removesuffix("_file") for login in logins[:2])
        raise fault(node, f"{key} has {shown}: use only one of them")
    if "password" in fields and "user" not in fields:
        raise fault(node, f"{key} has a password and no user")
    return RemoteOptions(**{"name": name, "prefix": f"$JS.{name}.API", **fields})


def _urls(node: ConfigNode, key: str) -> tuple[Secret, ...]:
    found = texts(node, key)
    if not found:
        raise fault(node, f"{key} must not be empty")
    for url in found:
        try:
            parse_address(url)
        except OptionsError as error:
            raise fault(node, f"{key}: {error}") from None
    return tuple(map(Secret, found))


def _prefix(node: ConfigNode, key: str) -> str:
    prefix = text(node, key)
    if not is_valid_literal(prefix):
        raise fault(node, f"{key} {prefix!r} must be a subject without wildcards")
    if collide(prefix, "$JS.API"):
        raise fault(node, f"{key} {prefix!r} must not be the prefix of this server's own API")
    return prefix


def _domain(node: ConfigNode, key: str) -> str:
    name = text(node, key)
    if not is_valid_name(name):
        raise fault(node, f"{key} {name!r} must be one token of a subject")
    return name


_LEAF_TLS: Table = {
    "insecure": ("insecure", truth),
    "timeout": ("timeout_ns", seconds),
    "verify": ("", ignored),  # concerns listeners only
}


def read_remote_tls(
    reader: Reader, node: ConfigNode, key: str, *, is_leaf: bool = False
) -> RemoteTlsOptions:
    """The `tls` block of a server to connect to; leaf nodes have some additional keys."""
    first = ("handshake_first", truth)
    fields = reader.fields(
        node,
        key,
        {
            "ca_file": ("ca_file", text),
            "cert_file": ("cert_file", text),
            "key_file": ("key_file", text),
            "hostname": ("hostname", text),
            "handshake_first": first,
            "first": first,
            **(_LEAF_TLS if is_leaf else {}),
        },
    )
    options = RemoteTlsOptions(**fields)
    if bool(options.cert_file) != bool(options.key_file):
        raise fault(node, f"{key} has only one of cert_file and key_file")
    return options
