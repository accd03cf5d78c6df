"""Chooses the way of reading from the options.

Owns the choice only. `auto` uses the block files if their folder was given and is accessible to the
executors and this process; otherwise the server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.spark.errors import OptionError
from tradewind.spark.providers.backup_reading import ArchiveProvider
from tradewind.spark.providers.backup_reads import BackupProvider
from tradewind.spark.providers.blocks import BlocksProvider
from tradewind.spark.providers.network import NetworkProvider

if TYPE_CHECKING:
    from tradewind.spark.contract.provider_contract import GrowingProvider, Provider
    from tradewind.spark.options.source_options import SourceOptions


def open_provider(options: SourceOptions) -> Provider:
    """The provider of a batch."""
    if options.archive:
        return ArchiveProvider(options)
    return BackupProvider(options) if options.read_mode == "backup" else open_growing(options)


def open_growing(options: SourceOptions) -> GrowingProvider:
    """The provider of a streaming query."""
    if options.archive:
        raise OptionError("archive", "a backup does not change; use spark.read, not readStream")
    if options.read_mode == "backup":
        raise OptionError("readMode", "a backup has an end; use spark.read, not readStream")
    if options.read_mode == "blocks" or (options.store_dir and options.read_mode == "auto"):
        if not Path(options.store_dir).is_dir():
            raise OptionError("storeDir", f"there is no folder {options.store_dir}")
        return BlocksProvider(options)
    return NetworkProvider(options)
