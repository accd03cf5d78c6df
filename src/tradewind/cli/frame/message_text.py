"""The text form of a message: headers, body, and the flag `-H K:V`.

Owns reading headers from flags and bodies from standard input, and printing both. It never contacts
a server.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.message_templates import Moment, Template
from tradewind.cli.frame.output import is_terminal, line
from tradewind.client.core.headers import Headers

INPUT_BYTES_MAX: Final = 64 << 20
COMMAND_SECONDS: Final = 30.0


class HeaderTemplates:
    """Headers of `-H name:value`, whose values may use the functions of templates."""

    def __init__(self, texts: Sequence[str], *, functions: bool = True) -> None:
        self._fields = [
            (name, Template(value, functions=functions)) for name, value in _fields(texts)
        ]

    def fill(self, moment: Moment) -> Headers | None:
        """The headers of one message; None if there are none."""
        if not self._fields:
            return None
        headers = Headers()
        for name, value in self._fields:
            headers.add(name, value.fill(moment))
        return headers


def header_fields(texts: Sequence[str]) -> dict[str, str | list[str]]:
    """Headers of `-H name:value` as they are, by name."""
    made: dict[str, str | list[str]] = {}
    for name, value in _fields(texts):
        had = made.get(name, [])
        made[name] = [*had, value] if isinstance(had, list) else [had, value]
    return made


def _fields(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise CommandError(f"-H {text!r}: write NAME:VALUE", exit_code=EXIT_USAGE)
        yield name.strip(), value.strip()


def read_input() -> bytes:
    """All of the standard input; CommandError if it is more than a message can be."""
    data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(data) > INPUT_BYTES_MAX:
        raise CommandError(f"the input is larger than {INPUT_BYTES_MAX >> 20} MiB")
    return data


def has_input() -> bool:
    """Whether there is a standard input at all; a program may be started without one."""
    return sys.stdin is not None and not sys.stdin.closed


def input_is_given() -> bool:
    """Whether the standard input is a file or a pipe, rather than a terminal."""
    return has_input() and not is_terminal(sys.stdin)


def write_body(data: bytes, translate: str = "", *, raw: bool = False) -> None:
    """Write a body; on a terminal, a line end is added if it has none.

    It goes into a file or a pipe as it is. A terminal gets it as it is only if `raw` was asked for.
    """
    body = translated(data, translate)
    if raw or not is_terminal(sys.stdout):
        write_raw(body)
    else:
        text = body.decode(errors="surrogateescape").replace("\r\n", "\n")
        line(text.removesuffix("\n"))


def write_raw(data: bytes) -> None:
    """Bytes as they are and a line end on the standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
    sys.stdout.buffer.flush()


def translated(data: bytes, command: str) -> bytes:
    """A body after it went through a command; as it is without one."""
    if not command:
        return data
    try:
        done = subprocess.run(  # noqa: S602 - the user's own command line
            command, shell=True, input=data, capture_output=True, timeout=COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CommandError(
            f"--translate {command!r}: it took longer than {COMMAND_SECONDS:g} s"
        ) from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise CommandError(f"--translate {command!r}: {reason}")
    return done.stdout


def as_document(subject: str, reply: str, headers: Headers, data: bytes) -> dict[str, Any]:
    """A message for machines, as the `nats` tool dumps it: the body is Base64."""
    document: dict[str, Any] = {"Subject": subject, "Reply": reply}
    document["Header"] = {name: headers.get_all(name) for name in headers} or None
    document["Data"] = base64.b64encode(data).decode()
    return document
