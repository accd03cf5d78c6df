"""The options of writes with the format `jetstream`.

Owns one row per option (`option_rows`) and every check that needs no server. As for reads, an
unknown option is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Final

from tradewind.api.names import KV_STREAM
from tradewind.spark.connections.logins import JobLogin
from tradewind.spark.errors import OptionError
from tradewind.spark.options.option_rows import (
    option,
    parse_given,
    some_text,
    text_list,
    whole_number,
    yes_or_no,
)
from tradewind.spark.options.source_options import (
    TIMEOUT_SECONDS,
    TIMEOUT_SECONDS_MAX,
    SourceOptions,
)

MARKS_BUCKET: Final = "spark_sinks"
# Spark hands its own options of a streaming query over, too.
_OF_SPARK: Final = ("checkpointlocation", "queryname")
# A template in pieces: a literal text, and the column after it or None.
Template = tuple[tuple[str, str | None], ...]


def parse_template(name: str, text: str) -> Template:
    """The pieces of `orders.{region}.new`; OptionError if the braces do not fit."""
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise OptionError(name, f"{text!r}: {error}; write columns as {{column}}") from None
    pieces: list[tuple[str, str | None]] = []
    for literal, column, format_spec, conversion in parsed:
        if column == "" or format_spec or conversion:
            raise OptionError(name, f"{text!r}: a pair of braces holds the name of a column only")
        pieces.append((literal, column))
    if not pieces:
        raise OptionError(name, "it is empty")
    return tuple(pieces)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options; an empty text means that nothing was said."""

    stream: str = option(
        "stream",
        some_text,
        "",
        "the stream to write to, which must exist; also the argument of `save` and `start`",
        also=("path",),
    )
    bucket: str = option("bucket", some_text, "", "the bucket to write to, which must exist")
    servers: tuple[str, ...] = option(
        "servers", text_list, (), "as for reads, and so are [logins](#logins)", is_shown=False
    )
    login: JobLogin = field(default_factory=JobLogin)
    context: str = option("context", some_text, "", "as for reads")
    subject: Template = option(  # noqa: RUF009 - as dataclasses.field
        "subject",
        parse_template,
        (),
        "the subject of each row, or a template such as `orders.{region}`",
    )
    key: Template = option(  # noqa: RUF009 - as dataclasses.field
        "key", parse_template, (), "the same for the keys of a bucket"
    )
    id_column: str = option(
        "idColumn",
        some_text,
        "",
        "a column with the message ID of each row, instead of the IDs"
        " [below](#exactly-once-writes)",
    )
    txn_app_id: str = option(
        "txnAppId",
        some_text,
        "",
        "write a batch once: completed and older versions are skipped. For `foreachBatch`",
    )
    txn_version: int | None = option(
        "txnVersion",
        whole_number((1 << 62) - 1, least=0),
        None,
        "the number of the batch, with `txnAppId`",
    )
    txn_same_partitions: bool = option(
        "txnSamePartitions",
        yes_or_no,
        False,
        "`true`: a repeated `txnVersion` has the same rows in the same partitions, as in a"
        " streaming query, so equal rows are never confused; default `false`",
    )
    timeout_seconds: int = option(
        "timeoutSeconds",
        whole_number(TIMEOUT_SECONDS_MAX),
        TIMEOUT_SECONDS,
        f"how long to wait for a server that is away; default {TIMEOUT_SECONDS}",
    )
    marks_bucket: str = option(
        "marksBucket", some_text, MARKS_BUCKET, f"bucket for marks; default `{MARKS_BUCKET}`"
    )
    fails_on_unknown: bool = option(
        "failOnUnknown",
        yes_or_no,
        True,
        "`true` (default): fail if it is unknown which rows are stored; `false`: log a warning",
    )

    @property
    def target(self) -> str:
        """The stream that is written to; a bucket is one, too."""
        return f"{KV_STREAM}{self.bucket}" if self.bucket else self.stream

    @property
    def template(self) -> Template:
        """The template of the subject or the key of a row; empty if a column has it."""
        return self.key if self.bucket else self.subject

    @property
    def address(self) -> SourceOptions:
        """Where the server is, as readers say it."""
        return SourceOptions(
            stream=(self.target,),
            servers=self.servers,
            login=self.login,
            context=self.context,
            timeout_seconds=self.timeout_seconds,
        )


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of one write; OptionError names the one that is wrong."""
    found: dict[str, Any] = parse_given(SinkOptions, given, _OF_SPARK, " for writes")
    options = SinkOptions(**found)
    _check_together(options)
    return options


def _check_together(options: SinkOptions) -> None:
    if bool(options.stream) == bool(options.bucket):
        raise OptionError("stream", "specify where to write: either stream or bucket")
    if not (options.servers or options.context):
        raise OptionError("servers", "specify where the stream is: servers or context")
    if options.bucket and options.subject:
        raise OptionError("subject", "a bucket has keys; set the option key")
    if options.stream and options.key:
        raise OptionError("key", "a stream has subjects; set the option subject")
    if options.bucket and options.id_column:
        raise OptionError("idColumn", "in a bucket the key tells rows apart")
    if bool(options.txn_app_id) != (options.txn_version is not None):
        raise OptionError("txnVersion", "set both txnAppId and txnVersion, or neither")
    if options.txn_same_partitions and not options.txn_app_id:
        raise OptionError("txnSamePartitions", "only for a write with txnAppId and txnVersion")
