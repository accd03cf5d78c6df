"""The sinks that share one read of a source, as decided when they first ran.

Owns the file `shared.json` in the checkpoint of a shared query. The decision stays: a sink that
comes later begins with a query of its own, because the shared one has already read on. A sink
cannot leave the query that has written to it, because it would begin again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from tradewind.pipelines.definition.model import SHARED_SUFFIX, Pipeline
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import Place, names_in, replace_file
from tradewind.pipelines.state.status import DEAD_SUFFIX

SHARED_FILE: Final = "shared.json"
QUERIES: Final = "queries"


class SharedMembers(msgspec.Struct, frozen=True):
    """The sinks of a shared query, and the dead letters of its source."""

    parts: list[str]


def shared_name(source: str) -> str:
    """The name of the query that several sinks of a source share."""
    return f"{source}{SHARED_SUFFIX}"


def read_members(pipeline: Pipeline) -> dict[str, list[str]]:
    """The members of all shared queries that have ever run, by query."""
    folder = pipeline.checkpoint / QUERIES
    found = {}
    for name in names_in(folder):
        if name.endswith(SHARED_SUFFIX) and (parts := _read(folder / name)) is not None:
            found[name] = parts
    return found


def _read(query: Place) -> list[str] | None:
    path = query / SHARED_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SharedMembers).parts
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise PipelineError(f"{path}: not a list of sinks: {error}") from None


def write_members(pipeline: Pipeline, source: str, parts: Iterable[str]) -> None:
    """Keep the members of a shared query."""
    path = pipeline.query_checkpoint(shared_name(source)) / SHARED_FILE
    replace_file(path, msgspec.json.encode(SharedMembers(list(parts))) + b"\n")


def has_query(pipeline: Pipeline, name: str) -> bool:
    """Whether a sink has run with a query of its own."""
    return "metadata" in names_in(pipeline.query_checkpoint(name))


def sink_checkpoint(pipeline: Pipeline, name: str) -> Place:
    """The checkpoint of the query that writes a sink: its own, or a shared one."""
    for query, parts in read_members(pipeline).items():
        if name in parts:
            return pipeline.query_checkpoint(query)
    return pipeline.query_checkpoint(name)


def members_of(
    pipeline: Pipeline, source: str, able: Collection[str], before: dict[str, list[str]]
) -> list[str]:
    """The parts that the shared query of a source has in this run; fewer than two are none.

    `able` are those that could be part of it, `before` what `read_members` has found.
    """
    if (known := before.get(shared_name(source))) is not None:
        return [part for part in known if part in able]
    fresh = [part for part in able if not has_query(pipeline, part)]
    return fresh if len(fresh) > 1 else []


def check_acknowledged(pipeline: Pipeline, shared: Collection[str] = ()) -> None:
    """PipelineFileError if several queries would acknowledge the messages of a source.

    The fastest of them would, and the others might no longer find their messages. `shared` are the
    parts of shared queries, each of which is one query.
    """
    for name, source in pipeline.sources.items():
        if not source.ack_consumer:
            continue
        parts = [
            one for one, sink in pipeline.sinks.items() if name in pipeline.origins[sink.input]
        ]
        if source.payload is not None and source.payload.dead_letter is not None:
            parts.append(f"{name}{DEAD_SUFFIX}")
        queries = [part for part in parts if part not in shared]
        if len(queries) + (len(queries) < len(parts)) > 1:
            text = (
                f"{', '.join(parts)} read this source with several queries, and only one can"
                " acknowledge its messages: use `share: true` with sinks that are made row by row,"
                " or a pipeline for each sink"
            )
            raise pipeline.document.error(("sources", name, "ack_consumer"), text)


def check_kept(
    pipeline: Pipeline, chosen: dict[str, list[str]], before: dict[str, list[str]]
) -> None:
    """PipelineFileError if a sink would begin again, because it left a shared query."""
    for query, parts in before.items():
        for part in parts:
            if part in pipeline.sinks and part not in chosen.get(query, ()):
                text = (
                    f"{part} was written by the shared query {query} so far, and would begin again"
                    " without it: keep `share: true` and rows that are made one by one from that"
                    " source, give the sink another name, or use another checkpoint"
                )
                raise pipeline.document.error(("sinks", part), text)
