"""The schema of a source's payloads: declared in the file, or inferred once and then frozen.

Owns the folder `schemas` next to the checkpoint. Every later run uses the frozen schema, so a
message of another shape is a bad row and never changes the table. After the file is deleted, the
next run infers the schema again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.pipelines.definition.model import INFER
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import Place, replace_file
from tradewind.pipelines.payloads.inference import InferredFields, infer

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLE_MESSAGES: Final = 1000
SAMPLE_BYTES_MAX: Final = 16 << 20


class FrozenSchema(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file of one source."""

    schema: str
    sampled: int
    others: int


def declared_ddl(schema: str | dict[str, str]) -> str:
    """The schema of the file as DDL; empty if it is to be inferred."""
    if isinstance(schema, dict):
        return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in schema.items())
    return "" if schema.strip() == INFER else schema


def frozen_path(checkpoint: Place, source: str) -> Place:
    """Where the inferred schema of a source is kept."""
    return checkpoint / "schemas" / f"{source}.json"


def read_frozen(checkpoint: Place, source: str) -> FrozenSchema | None:
    """The frozen schema of a source, if there is one."""
    path = frozen_path(checkpoint, source)
    try:
        return msgspec.json.decode(path.read_bytes(), type=FrozenSchema)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise PipelineError(
            f"{path}: not a valid schema file: {error}; delete it to infer the schema again"
        ) from None


def freeze(checkpoint: Place, source: str, inferred: InferredFields) -> FrozenSchema:
    """Keep a schema for all later runs."""
    frozen = FrozenSchema(inferred.ddl, inferred.sampled, inferred.others)
    data = msgspec.json.format(msgspec.json.encode(frozen)) + b"\n"
    replace_file(frozen_path(checkpoint, source), data)
    return frozen


def infer_from_source(source: str, options: Mapping[str, str], column: str) -> InferredFields:
    """The schema of what a source holds now, from its first and its last messages."""
    try:
        return infer(sample_payloads(options, column))
    except ValueError as error:
        raise PipelineError(f"source {source}: no schema: {error}; declare one") from None


def sample_payloads(options: Mapping[str, str], column: str) -> Iterator[bytes]:
    """The first and the last payloads of each stream, read without Spark."""
    from tradewind.spark.contract.bucket_tables import table_tasks
    from tradewind.spark.contract.filters import filter_of
    from tradewind.spark.options.source_options import parse_options
    from tradewind.spark.providers.provider_choice import open_provider

    parsed = replace(parse_options(options), is_sample=True)
    provider = open_provider(parsed)
    try:
        for state in provider.states():
            half = SAMPLE_MESSAGES // 2
            rows = filter_of(parsed)
            first = (state.first_seq, min(state.first_seq + half - 1, state.last_seq))
            last = (max(first[1] + 1, state.last_seq - half + 1), state.last_seq)
            size = 0
            for low, high in (first, last):
                if low > high or size > SAMPLE_BYTES_MAX:
                    continue
                for task in table_tasks(parsed, provider, state, rows.between(low, high)):
                    for batch in task.batches([column]):
                        for value in batch.column(0):
                            payload = value.as_py()
                            if payload:
                                size += len(payload)
                                yield payload
    finally:
        provider.close()
