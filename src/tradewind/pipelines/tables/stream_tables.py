"""The tables of an account: which streams have one, and how it is asked for and given up.

Owns the requests to the server. The metadata of a stream is all that says that it has a table, so
both servers and all clients keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tradewind.client.api_errors import StreamNotFoundError
from tradewind.pipelines.definition.loading import near
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.tables.table_spec import (
    TableSpec,
    for_stream,
    problem_with,
    table_of,
    with_table,
)

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig
    from tradewind.sync import JetStreamManager


@dataclass(frozen=True)
class StreamTable:
    """A stream with its table, or with what is wrong with that."""

    stream: str
    spec: TableSpec | None
    problem: str = ""


def list_tables(manager: JetStreamManager) -> list[StreamTable]:
    """All streams of the account that have a table, by name."""
    found = []
    for info in manager.streams.list().all():
        table = table_in(info.config)
        if table is not None:
            found.append(table)
    return sorted(found, key=lambda one: one.stream)


def find_table(manager: JetStreamManager, stream: str) -> StreamTable:
    """The table of a stream; PipelineError if the stream or its table is not there."""
    table = table_in(_config(manager, stream))
    if table is None:
        raise PipelineError(
            f"stream {stream} has no table; `tradewind table add {stream} --to FOLDER` makes one"
        )
    return table


def put_table(manager: JetStreamManager, stream: str, spec: TableSpec) -> TableSpec | None:
    """Ask for a table, instead of the one before, which is returned; None if there was none."""
    spec = for_stream(stream, spec)
    key, problem = problem_with(stream, spec)
    if problem:
        raise PipelineError(f"{key}: {problem}")
    config = _config(manager, stream)
    if spec.dead_letters:
        _config(manager, spec.dead_letters)
    before = table_in(config)
    manager.streams.update(stream, metadata=with_table(config.metadata, spec))
    return before.spec if before is not None else None


def remove_table(manager: JetStreamManager, stream: str) -> None:
    """Give up a table; its files stay where they are."""
    config = _config(manager, stream)
    manager.streams.update(stream, metadata=with_table(config.metadata, None))


def _config(manager: JetStreamManager, stream: str) -> StreamConfig:
    try:
        return manager.streams.info(stream).config
    except StreamNotFoundError:
        raise PipelineError(
            f"stream {stream!r} does not exist{near(stream, manager.streams.names())}"
        ) from None


def table_in(config: StreamConfig) -> StreamTable | None:
    """The table that a stream asks for, with what is wrong with it; None if it asks for none."""
    try:
        spec = table_of(config.name, config.metadata)
    except PipelineError as error:
        return StreamTable(config.name, None, str(error))
    if spec is None:
        return None
    key, problem = problem_with(config.name, spec)
    return StreamTable(
        config.name, spec, f"table of {config.name}: {key}: {problem}" if problem else ""
    )
