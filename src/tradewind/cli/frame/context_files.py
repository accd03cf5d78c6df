"""Context files of the `nats` tool: list, read, write, copy, remove, select.

Owns their contents, so that both tools can share them; the meaning of the fields for a connection
is in `client.core.contexts`. Unknown fields are never changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from tradewind.cli.frame.json_input import json_problem
from tradewind.client.core.contexts import contexts_folder
from tradewind.client.errors import OptionsError
from tradewind.private_files import replace_private

# All texts but `tls_first`; the `nats` tool writes them all.
FIELDS: Final = (
    "description",
    "url",
    "socks_proxy",
    "token",
    "user",
    "password",
    "creds",
    "nkey",
    "cert",
    "key",
    "ca",
    "nsc",
    "jetstream_domain",
    "jetstream_api_prefix",
    "jetstream_event_prefix",
    "inbox_prefix",
    "user_jwt",
    "user_seed",
    "color_scheme",
    "tls_first",
)
SECRETS: Final = frozenset({"token", "password", "user_jwt", "user_seed"})
_SELECTED: Final = "context.txt"
_PREVIOUS: Final = "previous-context.txt"
_NAME: Final = re.compile(r"[^/\\\x00]+")


def names() -> list[str]:
    """The names of all contexts, sorted."""
    return sorted(path.stem for path in contexts_folder().glob("*.json"))


def selected() -> str:
    """The name of the context that is used by default; "" if none is."""
    return _read_name(_SELECTED)


def previous() -> str:
    """The name of the context that was selected before; "" if none was."""
    return _read_name(_PREVIOUS)


def path_of(name: str) -> Path:
    """Where a context is kept; OptionsError if it cannot be the name of one."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise OptionsError(f"context {name!r}: a name must not contain slashes")
    return contexts_folder() / f"{name}.json"


def exists(name: str) -> bool:
    """Whether there is a context of this name."""
    return path_of(name).is_file()


def load(name: str) -> dict[str, Any]:
    """All fields of a context, also those that mean nothing here."""
    path = path_of(name)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _missing(name) from None
    except OSError as error:
        raise OptionsError(f"context {name!r}: {path}: {error.strerror}") from None
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError as error:
        problem = json_problem(content, error)
        raise OptionsError(f"context {name!r}: {path}: {problem}") from None


def save(name: str, fields: dict[str, Any]) -> Path:
    """Write a context; only its owner can read it, since it may hold passwords."""
    path = path_of(name)
    _write(path, save_text(fields))
    return path


def save_text(fields: dict[str, Any]) -> bytes:
    """The text of a context's file: all fields, including those that are not set."""
    document: dict[str, Any] = {key: "" for key in FIELDS if key != "tls_first"}
    document |= {"tls_first": False, **fields}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def remove(name: str) -> None:
    """Remove a context; if it was the selected one, none is."""
    if not exists(name):
        raise _missing(name)
    path_of(name).unlink()
    if selected() == name:
        unselect()


def select(name: str) -> None:
    """Use a context by default, and remember the one before."""
    if not exists(name):
        raise _missing(name)
    before = selected()
    folder = contexts_folder().parent
    if before and before != name:
        _write(folder / _PREVIOUS, before.encode())
    _write(folder / _SELECTED, name.encode())


def unselect() -> None:
    """Clear the default context."""
    before = selected()
    folder = contexts_folder().parent
    if before:
        _write(folder / _PREVIOUS, before.encode())
    (folder / _SELECTED).unlink(missing_ok=True)


def _missing(name: str) -> OptionsError:
    known = ", ".join(names()) or "none"
    return OptionsError(f"context {name!r} does not exist (available: {known})")


def _read_name(file: str) -> str:
    path = contexts_folder().parent / file
    return path.read_text().strip() if path.is_file() else ""


def _write(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a reader sees the old content or the new one."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(path, content)
    except OSError as error:
        raise OptionsError(f"{path} cannot be written: {error.strerror}") from None
