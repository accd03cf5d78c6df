"""Context files of the `nats` command line: named sets of options in the user's folder.

Owns their location and the meaning of their fields; fields that concern only the command line are
ignored. It never writes a context file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.errors import OptionsError

_NAME = re.compile(r"[^/\\]+")
_SELECTED = "context.txt"


class ContextFile(msgspec.Struct):
    """The fields of a context that matter to a connection."""

    url: str = ""
    token: str = ""
    user: str = ""
    password: str = ""
    creds: str = ""
    nkey: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""
    user_jwt: str = ""
    user_seed: str = ""
    inbox_prefix: str = ""
    jetstream_domain: str = ""
    jetstream_api_prefix: str = ""
    tls_first: bool = False
    nsc: str = ""
    socks_proxy: str = ""


def contexts_folder() -> Path:
    """Where the command line keeps its contexts."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "nats" / "context"


def selected_context() -> str:
    """The name of the context that `nats context select` chose; empty if there is none."""
    selected = contexts_folder().parent / _SELECTED
    return selected.read_text().strip() if selected.is_file() else ""


def load_context(name: str = "") -> ConnectOptions:
    """The options of a context; without a name, of the one that `nats context select` chose."""
    folder = contexts_folder()
    if not name:
        name = selected_context()
        if not name:
            raise OptionsError("context: none is selected; name one, or use `nats context select`")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise OptionsError(f"context {name!r}: a name must not contain slashes")
    path = folder / f"{name}.json"
    try:
        content = path.read_bytes()
    except OSError as error:
        known = ", ".join(sorted(file.stem for file in folder.glob("*.json"))) or "none"
        raise OptionsError(
            f"context {name!r}: {path} cannot be read: {error.strerror} (available: {known})"
        ) from None
    try:
        context = msgspec.json.decode(content, type=ContextFile)
    except msgspec.DecodeError as error:
        raise OptionsError(f"context {name!r}: {path}: {error}") from None
    return _options(name, context)


def _options(name: str, context: ContextFile) -> ConnectOptions:
    for field in ("nsc", "socks_proxy"):
        if getattr(context, field):
            raise OptionsError(
                f"context {name!r}: {field} is not supported; use a credentials file or a URL"
            )

    def path(text: str) -> str:
        return str(Path(text).expanduser()) if text else ""

    defaults = ConnectOptions()
    # The command line accepts a user name without a password as a token.
    token = context.token or (context.user if not context.password else "")
    return ConnectOptions(
        servers=context.url or defaults.servers,
        user=context.user if context.password else "",
        password=context.password,
        token=token,
        credentials=path(context.creds),
        nkey_file=path(context.nkey),
        user_jwt=context.user_jwt,
        nkey_seed=context.user_seed,
        tls_ca_file=path(context.ca),
        tls_cert_file=path(context.cert),
        tls_key_file=path(context.key),
        tls_handshake_first=context.tls_first,
        inbox_prefix=context.inbox_prefix or defaults.inbox_prefix,
        jetstream_domain=context.jetstream_domain,
        jetstream_api_prefix=context.jetstream_api_prefix,
    )
