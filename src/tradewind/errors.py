"""Every exception that Tradewind raises on purpose, and a program may catch.

    from tradewind.errors import NoRespondersError, StreamNotFoundError

Owns the bases of the class hierarchy. The errors of the client, of the JetStream API and of Spark
are defined with what raises them, and found here too, imported on first use. The texts are created
where an error is found, because only that place can name the field, the byte or the file. Internal
bugs are not among these classes; those are assertions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tradewind.backups.backup_errors import BackupError as BackupError
    from tradewind.chain.chain_entries import ChainError as ChainError
    from tradewind.client.api_errors import *  # noqa: F403 - one class for each code of the API
    from tradewind.client.errors import *  # noqa: F403
    from tradewind.client.running.consumer_run import HandlerCancelled as HandlerCancelled
    from tradewind.client.running.payload_codecs import PayloadError as PayloadError
    from tradewind.client.running.retries import HandlerTimeoutError as HandlerTimeoutError
    from tradewind.decoding.decoder_contract import DecodingError as DecodingError
    from tradewind.pipelines.errors import JobError as JobError
    from tradewind.pipelines.errors import PipelineError as PipelineError
    from tradewind.pipelines.errors import PipelineFileError as PipelineFileError
    from tradewind.recovery.recovery_errors import RecoveryError as RecoveryError
    from tradewind.schemas.schema_errors import SchemaError as SchemaError
    from tradewind.spark.errors import CheckpointError as CheckpointError
    from tradewind.spark.errors import DataLossError as DataLossError
    from tradewind.spark.errors import OptionError as OptionError
    from tradewind.spark.errors import RowError as RowError
    from tradewind.spark.errors import SparkSetupError as SparkSetupError
    from tradewind.spark.errors import SupersededError as SupersededError
    from tradewind.spark.errors import UnknownOutcomeError as UnknownOutcomeError

# The exceptions of decoding untrusted JSON: invalid, not UTF-8, of another type, or too deep.
JSON_ERRORS: Final = (ValueError, RecursionError)


class TradewindError(Exception):
    """Base of all errors that a user may see; `str(error)` is one readable line."""


class ConfigError(TradewindError):
    """A configuration file, flag or option is not valid.

    `path` and `line` locate the error (the line is 1-based, and 0 if there is none, as for a flag).
    """

    def __init__(self, text: str, path: str = "", line: int = 0) -> None:
        self.text = text
        self.path = path
        self.line = line
        place = f"{path}:{line}: " if path and line else f"{path}: " if path else ""
        super().__init__(place + text)


class ProtocolError(TradewindError):
    """The peer violated the wire protocol; `wire_text` is the error sent to it (empty: nothing is
    sent).
    """

    def __init__(self, text: str, wire_text: str = "") -> None:
        self.wire_text = wire_text
        super().__init__(text)


class ServerStartError(TradewindError):
    """The server cannot start: an address in use, a file that cannot be read or written."""


class StoreError(TradewindError):
    """A store cannot do what was requested: no space, a failed write, a folder that is in use."""


class CorruptRecord(StoreError):  # noqa: N818 - it names what was found, not what happened to us
    """Bytes on disk are not those that were written there: their place, and the evidence."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        self.path = path
        self.offset = offset
        self.reason = reason
        super().__init__(f"{path}: byte {offset}: {reason}")


# The modules of the client with nothing but errors, of which all are found here.
_CLIENT: Final = ("tradewind.client.errors", "tradewind.client.api_errors")
_OTHERS: Final = {
    "BackupError": "tradewind.backups.backup_errors",
    "ChainError": "tradewind.chain.chain_entries",
    "CheckpointError": "tradewind.spark.errors",
    "DataLossError": "tradewind.spark.errors",
    "DecodingError": "tradewind.decoding.decoder_contract",
    "HandlerCancelled": "tradewind.client.running.consumer_run",
    "HandlerTimeoutError": "tradewind.client.running.retries",
    "JobError": "tradewind.pipelines.errors",
    "OptionError": "tradewind.spark.errors",
    "PayloadError": "tradewind.client.running.payload_codecs",
    "PipelineError": "tradewind.pipelines.errors",
    "PipelineFileError": "tradewind.pipelines.errors",
    "RecoveryError": "tradewind.recovery.recovery_errors",
    "RowError": "tradewind.spark.errors",
    "SchemaError": "tradewind.schemas.schema_errors",
    "SparkSetupError": "tradewind.spark.errors",
    "SupersededError": "tradewind.spark.errors",
    "UnknownOutcomeError": "tradewind.spark.errors",
}

if not TYPE_CHECKING:  # a name that does not exist is an error to type checkers

    def __getattr__(name: str) -> Any:
        import importlib

        if name == "__all__":
            return [each for each in __dir__() if not each.startswith("_")]
        if name in _OTHERS:
            return getattr(importlib.import_module(_OTHERS[name]), name)
        if name.endswith("Error"):
            for module in _CLIENT:
                found = getattr(importlib.import_module(module), name, None)
                if found is not None:
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        import importlib

        names = {*_OTHERS}
        for module in (__name__, *_CLIENT):
            source = importlib.import_module(module)
            # Those of this module itself are not looked up by `dir`, which is this function.
            for name in vars(source) if module == __name__ else dir(source):
                value = getattr(source, name)
                if isinstance(value, type) and issubclass(value, TradewindError):
                    names.add(name)
        return sorted(names - {"ApiError"})
