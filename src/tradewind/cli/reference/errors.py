"""`tradewind errors`: explains the error codes of the JetStream API.

Owns the display of the table in `tradewind.api.errors`. It never contacts a server.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from tradewind.api.errors import ERROR_KINDS, ErrorKind
from tradewind.api.own_errors import OWN_KINDS
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag
from tradewind.cli.frame.output import Columns, Table, line, print_json

app = CommandApp("Error codes of the JetStream API")


@app.command("ls", aliases=("list",))
def list_errors(
    match: Annotated[str, Argument(metavar="MATCH", help="A regular expression")] = "",
    json: JsonFlag = False,
) -> None:
    """List error codes, optionally those that match a pattern."""
    try:
        pattern = re.compile(match, re.IGNORECASE)
    except re.error as error:
        raise CommandError(f"MATCH: {match!r} is not a regular expression: {error}") from None
    found = [
        kind
        for _, kind in sorted(ERROR_KINDS.items())
        if pattern.search(f"{kind.err_code} {kind.text}")
    ]
    if json:
        print_json([_document(kind) for kind in found])
        return
    if not found:
        line(f"No errors match {match}")
        return
    table = Table(
        "NATS Errors", "NATS Code", "HTTP Error Code", "Description", drop=("HTTP Error Code",)
    )
    for kind in found:
        table.row(str(kind.err_code), str(kind.code), kind.text)
    table.print()


@app.command("lookup", aliases=("find", "get", "l", "view", "show"))
def look_up(
    codes: Annotated[list[str], Argument(metavar="CODE", help="Error code, such as 10059")],
    json: JsonFlag = False,
) -> None:
    """Explain error codes."""
    kinds = [_kind(code) for code in codes]
    if json:
        documents = [_document(kind) for kind in kinds]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    from tradewind.client.api_errors import make_api_error

    for kind in kinds:
        error = make_api_error(kind.code, kind.err_code, kind.text)
        columns = Columns(f"NATS Error Code: {kind.err_code}")
        columns.row("Description", kind.text)
        columns.row("HTTP Code", str(kind.code))
        columns.row("Exception", type(error).__name__)
        columns.row_if("What to do", error.hint)
        columns.print()


def _kind(code: str) -> ErrorKind:
    number = int(code) if code.isascii() and code.isdigit() else 0
    kind = ERROR_KINDS.get(number) or OWN_KINDS.get(number)
    if kind is None:
        first, last = min(ERROR_KINDS), max(ERROR_KINDS)
        raise CommandError(
            f"error code {code!r} does not exist; they are between {first} and {last}",
            "see: tradewind errors ls",
        )
    return kind


def _document(kind: ErrorKind) -> dict[str, Any]:
    return {"code": kind.code, "error_code": kind.err_code, "description": kind.text}
