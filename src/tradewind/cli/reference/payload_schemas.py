"""`tradewind schema add|evolve|rm`: the schemas of payloads in their bucket.

Owns the commands, what they print, and reading schemas from files. The rules are those of
`tradewind.schemas`.
"""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from tradewind.cli.frame.failures import EXIT_FAILED, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, Option
from tradewind.cli.frame.json_input import read_json
from tradewind.cli.frame.output import Table, line, note, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.settings import connect, jetstream

if TYPE_CHECKING:
    from tradewind.schemas.schema_documents import SchemaVersion

app = CommandApp("Schemas of payloads")

FILE_BYTES_MAX: Final = 1 << 20
_FORMATS: Final = {
    ".json": "json",
    ".yaml": "json",
    ".yml": "json",
    ".avsc": "avro",
    ".desc": "protobuf",
    ".binpb": "protobuf",
    ".pb": "protobuf",
}
SchemaName = Annotated[str, Argument(metavar="NAME")]
SchemaFile = Annotated[Path, Argument(metavar="FILE", help="JSON Schema, .avsc, or descriptor set")]
FormatOption = Annotated[
    str, Option("--format", metavar="FORMAT", help="json, avro or protobuf; by the file's name")
]
MessageOption = Annotated[
    str, Option("--message", metavar="TYPE", help="Message type of a Protobuf descriptor set")
]
DescriptionOption = Annotated[str, Option("--description", help="Text about the schema")]


@app.command("add")
def add_schema(
    name: SchemaName,
    file: SchemaFile,
    *,
    subject: Annotated[str, Option("--subject", metavar="PATTERN", help="Subjects, as orders.*")],
    format_name: FormatOption = "",
    message: MessageOption = "",
    compatibility: Annotated[
        str, Option("--compatibility", metavar="RULE", help="backward, forward, full or none")
    ] = "backward",
    description: DescriptionOption = "",
) -> None:
    """Add the first version of a schema for the payloads of some subjects."""
    from tradewind.cli.reference.schema import is_api_name

    if is_api_name(name):
        raise CommandError(f"NAME: {name!r} is the name of a schema of the JetStream API")
    chosen = format_name or _format_of(file)
    schema = _read_schema(file, chosen)
    with connect() as connection:
        added = jetstream(connection).schemas.add(
            name,
            schema,
            subject=subject,
            format=chosen,
            message=message,
            compatibility=compatibility,
            description=description,
        )
    line(f"Schema {name} version {added.version} was added for {added.subject}")


@app.command("evolve")
def evolve_schema(
    name: SchemaName,
    file: SchemaFile,
    *,
    subject: Annotated[
        str, Option("--subject", metavar="PATTERN", help="Subjects, if they change")
    ] = "",
    format_name: FormatOption = "",
    message: MessageOption = "",
    compatibility: Annotated[
        str,
        Option("--compatibility", metavar="RULE", help="Another rule, for this version and later"),
    ] = "",
    description: DescriptionOption = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Only check compatibility")] = False,
) -> None:
    """Add a version of a schema, if its rule of compatibility allows it."""
    schema = _read_schema(file, format_name or _format_of(file))
    with connect() as connection:
        new = jetstream(connection).schemas.evolve(
            name,
            schema,
            subject=subject or None,
            format=format_name or _format_of(file),
            message=message or None,
            compatibility=compatibility or None,
            description=description or None,
            dry_run=dry_run,
        )
    if dry_run:
        line(f"Schema {name}: the file may become version {new.version} ({new.compatibility})")
    else:
        line(f"Schema {name} has version {new.version} now ({new.compatibility})")


@app.command("rm", aliases=("delete",))
def remove_schema(
    name: SchemaName,
    version: Annotated[int, Option("--version", min=0, help="Remove only this version")] = 0,
    force: ForceFlag = False,
) -> None:
    """Remove a schema, or one version of it; its subjects are free then."""
    what = f"version {version} of Schema {name}" if version else f"Schema {name}"
    with connect() as connection:
        confirm_or_stop(f"Really remove {what}", force=force)
        count = jetstream(connection).schemas.remove(name, version or None)
    line(f"Removed {count} version{'' if count == 1 else 's'} of Schema {name}")


def list_schemas(match: str = "", *, json: bool = False) -> None:
    """List the schemas of payloads."""
    try:
        pattern = re.compile(match)
    except re.error as error:
        raise CommandError(f"MATCH: {match!r} is not a regular expression: {error}") from None
    with connect() as connection:
        found = jetstream(connection).schemas.list()
    found = {name: versions for name, versions in found.items() if pattern.search(name)}
    if json:
        print_json(
            [
                {
                    "name": name,
                    "versions": [each.version for each in versions],
                    **_head(versions[-1]),
                }
                for name, versions in found.items()
            ]
        )
    elif not found:
        line("No Schemas of payloads defined" if not match else f"No Schemas match {match}")
    else:
        _print_table(found)


def list_if_reachable() -> None:
    """List the schemas of payloads, if there is a server and it has some."""
    from tradewind.errors import TradewindError

    found: dict[str, list[SchemaVersion]] = {}
    try:
        with connect() as connection:
            found = jetstream(connection).schemas.list()
    except TradewindError as error:
        note(f"schemas of payloads are not shown: {error}")
    if found:
        _print_table(found)


def show_schema(name: str, version: int, *, json: bool = False) -> None:
    """Show a schema of payloads."""
    with connect() as connection:
        document = jetstream(connection).schemas.get(name, version or None)
    if json:
        print_json({"name": name, **msgspec.to_builtins(document)})
        return
    line(f"Schema {name} version {document.version}")
    for label, value in _head(document).items():
        if value:
            line(f"{label:>15}: {value}")
    line()
    print_json(document.schema)


def check_payload(name: str, version: int, file: str, data: bytes, *, json: bool = False) -> None:
    """Check a payload against a schema."""
    from tradewind.errors import SchemaViolationError

    problem = schema = ""
    with connect() as connection:
        schemas = jetstream(connection).schemas
        schema = f"{name}.{version}" if version else name
        try:
            schemas.check(name, data, version=version or None)
        except SchemaViolationError as error:
            schema, problem = error.schema, error.problem
    if json:
        print_json({"schema": schema, "valid": not problem, "errors": [problem] if problem else []})
    if problem:
        raise CommandError(f"{file} does not obey {schema}: {problem}", exit_code=EXIT_FAILED)
    if not json:
        line(f"{file} obeys Schema {schema}")


def _print_table(found: dict[str, list[SchemaVersion]]) -> None:
    table = Table(
        "Schemas of payloads",
        *("Name", "Subjects", "Format", "Versions", "Compatibility", "Description"),
        drop=("Description",),
    )
    for name, versions in found.items():
        newest = versions[-1]
        numbers = ", ".join(str(each.version) for each in versions[-5:])
        numbers = f"..., {numbers}" if len(versions) > 5 else numbers
        table.row(
            *(name, newest.subject, newest.format, numbers, newest.compatibility),
            newest.description,
        )
    table.print()


def _head(document: SchemaVersion) -> dict[str, Any]:
    return {
        "subject": document.subject,
        "format": document.format,
        "message": document.message,
        "compatibility": document.compatibility,
        "description": document.description,
    }


def _format_of(file: Path) -> str:
    if file.suffix == ".proto":
        raise CommandError(
            f"FILE: {file} is source text; compile it first",
            f"protoc --include_imports --descriptor_set_out={file.stem}.desc {file}",
        )
    return _FORMATS.get(file.suffix, "json")


def _read_schema(file: Path, format_name: str) -> Any:
    """The schema in a file, as the bucket holds it."""
    try:
        with file.open("rb") as source:
            content = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"FILE: {file} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise CommandError(f"FILE: {file} has more than {FILE_BYTES_MAX} bytes")
    if format_name == "protobuf":
        return base64.b64encode(content).decode()
    if file.suffix in (".yaml", ".yml"):
        return _read_yaml(file)
    return read_json(content, str(file))


def _read_yaml(file: Path) -> Any:
    from tradewind.documents import Document

    document = Document(file)
    with suppress(UnicodeError):
        document.read()
    return document.value
