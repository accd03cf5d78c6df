"""What a frame is read from: streams, a bucket, an object store, or a backup.

Owns the names of the options here and the ways to read: Arrow, pandas, polars and DuckDB. The
options mean what those of the format `jetstream` mean, and are checked by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypedDict, TypeVar, Unpack

from tradewind.extra_packages import missing_package
from tradewind.spark.connections.logins import DEFAULT_SERVER, LOGIN_FIELDS, spark_name
from tradewind.spark.errors import OptionError, SparkSetupError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyarrow import dataset

    from tradewind.frames.stream_dataset import FrameRows
    from tradewind.spark.options.source_options import SourceOptions

# The options here, by the names that the format `jetstream` has for them.
_NAMES: Final = {
    "stream": "stream",
    "bucket": "bucket",
    "history": "history",
    "objectStore": "bucket",
    "archive": "folder",
    "servers": "servers",
    "context": "context",
    "storeDir": "store",
    "account": "account",
    "encryptionKey": "encryption_key",
    "previousEncryptionKey": "previous_encryption_key",
    "filterSubjects": "subjects",
    "startingSeq": "first_seq",
    "endingSeq": "last_seq",
    "startingTime": "start_time",
    "endingTime": "end_time",
    "failOnDataLoss": "fails_on_data_loss",
    "timeoutSeconds": "timeout",
    "columns": "columns",
}
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class FramePlace(TypedDict, total=False):
    """Where streams are: servers or a context, with the options of a login, or a store folder.

    Without any of them it is the server on this machine. A login has the options of
    `tradewind.connect`; a value may be `env:NAME` or `file:PATH`.
    """

    servers: str | Sequence[str]
    context: str
    store: str
    account: str
    encryption_key: str
    previous_encryption_key: str
    timeout: int
    user: str
    password: str
    token: str
    nkey_seed: str
    nkey_file: str
    credentials: str
    user_jwt: str
    tls_ca_file: str
    tls_cert_file: str
    tls_key_file: str
    tls_hostname: str
    tls_handshake_first: str
    jetstream_domain: str


def named_here(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Errors name the options as they are written here, and packages that are missing."""

    @wraps(function)
    def call(*args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **named)
        except OptionError as error:
            name = _NAMES.get(error.option, error.option)
            text = str(error).removeprefix(f"option {error.option}: ")
            raise OptionError(name, text) from None
        except ModuleNotFoundError as error:
            if text := missing_package(error):
                raise SparkSetupError(text) from None
            raise

    return call


@dataclass(frozen=True)
class FrameSource:
    """Something that can be read as a frame; reading begins when one of the methods is called.

    Each frame has one end: messages that come after it was made are not in it. `losses` are notes
    about messages that were removed while they were read, where that is no error.
    """

    options: SourceOptions = field(repr=False)
    columns: tuple[str, ...] = ()
    decode: str = ""
    schema_given: str | Mapping[str, str] = "infer"
    losses: list[str] = field(default_factory=list)

    def select(self, *columns: str) -> FrameSource:
        """The same with these columns only, in this order."""
        return replace(self, columns=columns)

    @named_here
    def rows(self) -> FrameRows:
        """The rows up to the end that the streams have now, to be read any number of times."""
        from tradewind.frames.frame_columns import (
            ChosenColumns,
            FrameColumns,
            PlainColumns,
            decoded_columns,
        )
        from tradewind.frames.frame_scan import FrameScan
        from tradewind.frames.stream_dataset import FrameRows

        scan = FrameScan(self.options, self.losses)
        made: FrameColumns = (
            decoded_columns(scan, self.decode, self.schema_given)
            if self.decode
            else PlainColumns(self.options.table_columns)
        )
        return FrameRows(scan, ChosenColumns(made, self.columns) if self.columns else made)

    @property
    def schema(self) -> pa.Schema:
        """The columns; those of decoded payloads without a given schema need a sample."""
        return self.rows().schema

    @named_here
    def reader(self) -> pa.RecordBatchReader:
        """The rows as Arrow batches, which are read while they are taken."""
        return self.rows().reader()

    def arrow(self) -> pa.Table:
        """All rows as one table of Arrow."""
        return self.reader().read_all()

    @named_here
    def pandas(self) -> pd.DataFrame:
        """All rows as a frame of pandas."""
        import pandas  # noqa: F401 - so that an error names it

        return self.arrow().to_pandas()

    @named_here
    def polars(self) -> pl.LazyFrame:
        """A lazy frame of polars. Columns, and conditions on sequence, time and subject narrow
        what is read.
        """
        from tradewind.frames.polars_scan import polars_frame

        return polars_frame(self.rows())

    @named_here
    def dataset(self) -> dataset.Dataset:
        """A dataset of Arrow, for engines that scan those; narrowed as `polars` is."""
        from tradewind.frames.stream_dataset import StreamDataset

        return StreamDataset(self.rows())

    @named_here
    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """A relation of DuckDB; narrowed as `polars` is."""
        import duckdb as engine

        return (connection or engine.default_connection()).from_arrow(self.dataset())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """What libraries ask for that take any frame: `polars.DataFrame(source)`."""
        return self.reader().__arrow_c_stream__(requested_schema)


def stream(
    name: str,
    *,
    subjects: str | Iterable[str] = (),
    first_seq: int | None = None,
    last_seq: int | None = None,
    start_time: datetime | str | None = None,
    end_time: datetime | str | None = None,
    columns: Iterable[str] = (),
    decode: str = "",
    schema: str | Mapping[str, str] = "infer",
    fails_on_data_loss: bool | None = None,
    **place: Unpack[FramePlace],
) -> FrameSource:
    """The messages of a stream, or of several: names joined by commas, or a pattern (*).

    With `decode` ("json", "avro", ...) the fields of payloads are columns too; `schema` is one of
    the decoder, or a mapping of names to types. `fails_on_data_loss`: an error if messages were
    removed after the read began; by default those at the head of the stream are only noted.

    >>> frames.stream("ORDERS", decode="json").pandas()
    >>> frames.stream("ORDERS", store="/var/lib/tradewind").polars().filter(pl.col("seq") > 100)
    """
    wanted = [subjects] if isinstance(subjects, str) else subjects
    given = {
        "stream": name,
        "filterSubjects": ",".join(wanted),
        "startingSeq": first_seq,
        "endingSeq": last_seq,
        "startingTime": _moment(start_time),
        "endingTime": _moment(end_time),
    }
    return _source(given, columns, decode, schema, fails_on_data_loss, place)


def bucket(
    name: str,
    *,
    history: bool = False,
    columns: Iterable[str] = (),
    decode: str = "",
    schema: str | Mapping[str, str] = "infer",
    fails_on_data_loss: bool | None = None,
    **place: Unpack[FramePlace],
) -> FrameSource:
    """The keys of a bucket with their values, or with `history` all changes that it has."""
    given = {"bucket": name, "history": "true" if history else None}
    return _source(given, columns, decode, schema, fails_on_data_loss, place)


def objects(
    name: str, *, columns: Iterable[str] = (), **place: Unpack[FramePlace]
) -> FrameSource:
    """The objects of an object store; their contents are read only if `columns` has `content`."""
    return _source({"objectStore": name}, columns, "", "infer", None, place)


def backup(
    folder: str,
    *,
    name: str = "",
    subjects: str | Iterable[str] = (),
    first_seq: int | None = None,
    last_seq: int | None = None,
    columns: Iterable[str] = (),
    decode: str = "",
    schema: str | Mapping[str, str] = "infer",
) -> FrameSource:
    """The messages in a backup of a stream: a folder of `tradewind stream backup`."""
    wanted = [subjects] if isinstance(subjects, str) else subjects
    given = {
        "archive": str(folder),
        "stream": name,
        "filterSubjects": ",".join(wanted),
        "startingSeq": first_seq,
        "endingSeq": last_seq,
    }
    return _source(given, columns, decode, schema, None, {})


@named_here
def _source(
    given: Mapping[str, object],
    columns: Iterable[str],
    decode: str,
    schema: str | Mapping[str, str],
    fails: bool | None,  # noqa: FBT001
    place: FramePlace,
) -> FrameSource:
    from tradewind.frames.frame_columns import check_columns
    from tradewind.spark.options.source_options import parse_options

    options = {name: str(value) for name, value in given.items() if value not in (None, "")}
    options |= {"usedBy": "frames"}
    if fails is not None:
        options["failOnDataLoss"] = "true" if fails else "false"
    if "archive" not in options:
        options |= _placed(place)
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)
    if not decode and schema != "infer":
        raise OptionError("schema", "name the format of the payloads too: decode='json'")
    parsed = parse_options(options)
    if not decode:
        check_columns(chosen, parsed.table_columns)
    return FrameSource(parsed, chosen, decode, schema)


def _placed(place: FramePlace) -> dict[str, str]:
    """A place in the words of the format `jetstream`."""
    known = {
        "servers": "servers",
        "context": "context",
        "store": "storeDir",
        "account": "account",
        "encryption_key": "encryptionKey",
        "previous_encryption_key": "previousEncryptionKey",
        "timeout": "timeoutSeconds",
        **{name: spark_name(name) for name in LOGIN_FIELDS},
    }
    found: dict[str, str] = {}
    for name, value in place.items():
        if name not in known:
            raise OptionError(name, f"unknown option; valid options: {', '.join(known)}")
        if value in ("", (), None):
            continue
        is_text = isinstance(value, str | int)
        found[known[name]] = str(value) if is_text else ",".join(value)  # type: ignore[call-overload]
    if not found.keys() & {"servers", "context", "storeDir"}:
        found["servers"] = DEFAULT_SERVER
    return found


def _moment(moment: datetime | str | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment
