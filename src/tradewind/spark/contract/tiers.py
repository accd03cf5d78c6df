"""Streams whose lake table may have messages that have left the stream.

Owns a batch read of such a stream: the part that is sealed from the files of the table, the rest
from the stream. The option `tiers` says which streams are read so. The module knows no lake:
`tradewind.pipelines.tables.tier_tasks` does, which is loaded only for a stream that has a table.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.extra_packages import install_command
from tradewind.spark.contract.bucket_tables import table_tasks
from tradewind.spark.errors import OptionError

if TYPE_CHECKING:
    from tradewind.spark.contract.filters import RowFilter
    from tradewind.spark.contract.provider_contract import Provider, ReadState, ReadTask
    from tradewind.spark.options.source_options import SourceOptions

logger = logging.getLogger(__name__)
# In the metadata of a stream: its table, as JSON.
TABLE_KEY: Final = "tradewind.table"
RAW: Final = "raw"
LAKES: Final = "tradewind.pipelines.tables.tier_tasks:tier_tasks"


class _Tiers(msgspec.Struct):
    """As much of a table as matters here."""

    tiers: bool = False
    keeps_data: bool = False
    payload: str = ""
    schema: Any = ""

    def is_read(self, wanted: str) -> bool:
        """Whether messages are read from the table, by the option `tiers`."""
        has_data = self.tiers or self.keeps_data or RAW in (self.payload, self.schema)
        return has_data if wanted == "any" else self.tiers


def all_tasks(
    options: SourceOptions, provider: Provider, state: ReadState, rows: RowFilter
) -> Sequence[ReadTask]:
    """The parts of a read of one stream, from its table as far as that goes."""
    if options.is_table or options.tiers == "false" or not _is_read(state, options.tiers):
        return table_tasks(options, provider, state, rows)
    module, _, function = LAKES.partition(":")
    try:
        sealed_tasks: Any = getattr(import_module(module), function)
    except ImportError as error:
        if not _is_read(state, "true"):
            logger.warning("stream %s is read without its table: %s", state.name, error)
            return table_tasks(options, provider, state, rows)
        raise OptionError(
            "stream",
            f"{state.name} has its older messages in a lake table, which needs {error.name}: "
            f"{install_command('spark', 'delta', 'iceberg')}",
        ) from None
    # The table is looked at after the stream: what the stream lost before is in it.
    tasks, until_seq = sealed_tasks(state, rows.between(1, state.last_seq), options.partitions_min)
    rest = rows.between(until_seq + 1, state.last_seq)
    return [*tasks, *(() if rest.is_empty else table_tasks(options, provider, state, rest))]


def _is_read(state: ReadState, wanted: str) -> bool:
    if not state.table:
        return False
    try:
        return msgspec.json.decode(state.table, type=_Tiers).is_read(wanted)
    except msgspec.DecodeError:
        return False  # the writer of the table reports what is wrong with it
