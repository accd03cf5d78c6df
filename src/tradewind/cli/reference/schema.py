"""`tradewind schema`: schemas of payloads by subject, and those of the JetStream API.

Owns which of the two a name means: one of the API first, as with the `nats` command. The schemas of
the API are generated from the types in `tradewind.api`, which the server and the client use. The
schemas of payloads are in a bucket; see `payload_schemas`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.endpoint_row import OWN_PREFIX, ApiEndpoint
from tradewind.api.endpoints import ENDPOINTS
from tradewind.api.errors import ApiError
from tradewind.api.requests import decode_request
from tradewind.api.responses import TYPE_PREFIX, PubAck, type_of
from tradewind.api.stream_types import StreamConfig
from tradewind.api.truncation_types import OWN_TYPE_PREFIX
from tradewind.cli.frame.failures import CommandError, near
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.message_text import read_input
from tradewind.cli.frame.output import Table, json_text, line, print_json
from tradewind.cli.frame.settings import connect
from tradewind.cli.reference import payload_schemas
from tradewind.errors import TradewindError

app = CommandApp("Schemas of payloads, and of the JetStream API")
app.include(payload_schemas.app)


@cache
def schemas() -> dict[str, type[ApiStruct]]:
    """All types by the names that the official schemas have, and ours in the same manner."""
    found: dict[str, type[ApiStruct]] = {
        f"{TYPE_PREFIX}stream_configuration": StreamConfig,
        f"{TYPE_PREFIX}consumer_configuration": ConsumerConfig,
        f"{TYPE_PREFIX}pub_ack_response": PubAck,
    }
    for endpoint in ENDPOINTS:
        if endpoint.request is not None:
            found.setdefault(_request_name(endpoint), endpoint.request)
        if endpoint.response is not None:
            found.setdefault(type_of(endpoint.response), endpoint.response)
    return dict(sorted(found.items()))


def _request_name(endpoint: ApiEndpoint) -> str:
    prefix = OWN_TYPE_PREFIX if endpoint.prefix == OWN_PREFIX else TYPE_PREFIX
    return f"{prefix}{endpoint.name}_request"


def _short(name: str) -> str:
    return name.removeprefix(TYPE_PREFIX).removeprefix(OWN_TYPE_PREFIX)


def _full_name(name: str) -> str:
    """The full name of a schema of the API; empty if it is none."""
    return next((each for each in schemas() if name in (each, _short(each))), "")


def is_api_name(name: str) -> bool:
    """Whether a schema of the API has this name."""
    return bool(_full_name(name))


def _is_of_payloads(name: str, show_payload: Callable[[], None]) -> bool:
    """Whether a name is that of a schema of payloads, which has been shown then."""
    if is_api_name(name):
        return False
    try:
        show_payload()
    except CommandError:
        raise
    except TradewindError:
        # No such schema, or no server: the name may be one of the API, mistyped.
        if near(_short(name), [_short(each) for each in schemas()]):
            return False
        raise
    return True


def _schema(name: str) -> tuple[str, type[ApiStruct]]:
    known = schemas()
    full = _full_name(name)
    if not full:
        hint = near(_short(name), [_short(each) for each in known])
        raise CommandError(f"schema {name!r} does not exist{hint}", "see: tradewind schema search")
    return full, known[full]


@app.command("search", aliases=("find", "list"))
def search(
    match: Annotated[str, Argument(metavar="MATCH", help="A regular expression")] = "",
    json: JsonFlag = False,
) -> None:
    """List schemas, optionally those that match a pattern."""
    try:
        pattern = re.compile(match)
    except re.error as error:
        raise CommandError(f"MATCH: {match!r} is not a regular expression: {error}") from None
    names = [name for name in schemas() if pattern.search(name)]
    if json:
        print_json(names)
        return
    if not names:
        line(f"No schemas match {match}")
        return
    subjects = {_request_name(each): each.subject_for("*", "*", ">") for each in ENDPOINTS}
    table = Table("Schemas", "Name", "Sent to")
    for name in names:
        table.row(name, subjects.get(name, ""))
    table.print()


@app.command("ls")
def list_all(
    match: Annotated[str, Argument(metavar="MATCH", help="A regular expression")] = "",
    payloads: Annotated[bool, Option("--payloads", help="Only schemas of payloads")] = False,
    json: JsonFlag = False,
) -> None:
    """List the schemas of payloads, and those of the API, optionally those that match."""
    if payloads:
        payload_schemas.list_schemas(match, json=json)
        return
    if not match and not json:
        payload_schemas.list_if_reachable()
    search(match, json)


@app.command("info", aliases=("show", "view"))
def show(
    name: Annotated[
        str, Argument(metavar="SCHEMA", help="Schema name, such as order or stream_configuration")
    ],
    version: Annotated[
        int, Option("--version", min=0, help="Version of a schema of payloads; the newest")
    ] = 0,
    json: JsonFlag = False,
) -> None:
    """Show a schema."""
    if _is_of_payloads(name, partial(payload_schemas.show_schema, name, version, json=json)):
        return
    full, kind = _schema(name)
    document: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": full,
        **msgspec.json.schema(kind),
    }
    print_json(document)


@app.command("validate", aliases=("check",))
def validate(
    name: Annotated[str, Argument(metavar="SCHEMA")],
    file: Annotated[str, Argument(metavar="FILE", help="File; - for standard input")],
    version: Annotated[
        int, Option("--version", min=0, help="Version of a schema of payloads; the newest")
    ] = 0,
    json: JsonFlag = False,
) -> None:
    """Validate a payload, or a document of the API, against its schema.

    Unknown fields of documents of the API are errors.
    """
    data = read_input() if file == "-" else Path(file).read_bytes()
    check = partial(payload_schemas.check_payload, name, version, file, data, json=json)
    if _is_of_payloads(name, check):
        return
    full, kind = _schema(name)
    problem = ""
    try:
        decode_request(kind, data)
    except ApiError as error:
        problem = error.description
    if json:
        print_json({"schema": full, "valid": not problem, "errors": [problem] if problem else []})
        if problem:
            raise CommandError(f"{file} is not a {full}")
    elif problem:
        raise CommandError(f"{file} is not a {full}: {problem}")
    else:
        line(f"{file} validates against {full}")


@app.command("request", aliases=("req",))
def request(
    subject: Annotated[
        str, Argument(metavar="SUBJECT", help="API subject, such as '$JS.API.INFO'")
    ],
    body: Annotated[str, Argument(metavar="BODY", help="File; - for standard input")] = "",
) -> None:
    """Send an API request and validate the response against its schema."""
    payload = read_input() if body == "-" else body.encode()
    with connect() as connection:
        answer = connection.request(subject, payload).data
    try:
        document = msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise CommandError(f"the response is not JSON: {error}") from None
    line(json_text(document))
    name = document.get("type", "") if isinstance(document, dict) else ""
    if name not in schemas():
        raise CommandError(f"the response has the type {name!r}, for which there is no schema")
    if "error" in document:
        raise CommandError(str(document["error"].get("description", "the request was rejected")))
    try:
        msgspec.json.decode(answer, type=schemas()[name])
    except msgspec.ValidationError as error:
        raise CommandError(f"the response is not a {name}: {error}") from None
    line()
    line(f"Response is a valid {name} message")
