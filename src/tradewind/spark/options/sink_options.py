"""The options of writes with the format `jetstream`.

Owns their names, defaults and every check that needs no server. As for reads, an unknown option is
an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from string import Formatter
from typing import Final

from tradewind.api.names import KV_STREAM
from tradewind.spark.connections.logins import LOGIN_FIELDS, JobLogin, spark_name, split_login
from tradewind.spark.errors import OptionError
from tradewind.spark.options.source_options import (
    TIMEOUT_SECONDS,
    TIMEOUT_SECONDS_MAX,
    SourceOptions,
    parse_list,
    parse_one_of,
    parse_positive,
)

MARKS_BUCKET: Final = "spark_sinks"
_NAMES: Final = {
    "stream": "stream",
    "path": "stream",
    "bucket": "bucket",
    "servers": "servers",
    "context": "context",
    "subject": "subject",
    "key": "key",
    "idcolumn": "id_column",
    "marksbucket": "marks_bucket",
    "txnappid": "txn_app_id",
    "txnversion": "txn_version",
    "txnsamepartitions": "txn_same_partitions",
    "timeoutseconds": "timeout_seconds",
    "failonunknown": "fails_on_unknown",
}
_SPELLINGS: Final = {
    "id_column": "idColumn",
    "marks_bucket": "marksBucket",
    "txn_app_id": "txnAppId",
    "txn_version": "txnVersion",
    "txn_same_partitions": "txnSamePartitions",
    "timeout_seconds": "timeoutSeconds",
    "fails_on_unknown": "failOnUnknown",
}
# Spark hands its own options of a streaming query over, too.
_OF_SPARK: Final = ("checkpointlocation", "queryname")
# A template in pieces: a literal text, and the column after it or None.
Template = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options; an empty text means that nothing was said."""

    stream: str = ""
    bucket: str = ""
    servers: tuple[str, ...] = field(default=(), repr=False)
    login: JobLogin = field(default_factory=JobLogin)
    context: str = ""
    subject: Template = ()
    key: Template = ()
    id_column: str = ""
    marks_bucket: str = MARKS_BUCKET
    txn_app_id: str = ""
    txn_version: int | None = None
    txn_same_partitions: bool = False
    timeout_seconds: int = TIMEOUT_SECONDS
    fails_on_unknown: bool = True

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
    login, others = split_login(given)
    found: dict[str, object] = {"login": login}
    for name, text in others.items():
        if name.lower() in _OF_SPARK:
            continue
        target = _NAMES.get(name.lower())
        if target is None:
            names = [one.name for one in fields(SinkOptions) if one.name != "login"]
            known = ", ".join([*map(_spelling, names), *map(spark_name, LOGIN_FIELDS)])
            raise OptionError(name, f"unknown option for writes; valid options: {known}")
        found[target] = _parse(target, str(text).strip())
    options = SinkOptions(**found)  # type: ignore[arg-type]
    _check_together(options)
    return options


def _spelling(name: str) -> str:
    return _SPELLINGS.get(name, name)


def _parse(target: str, text: str) -> object:
    name = _spelling(target)
    if target == "servers":
        return parse_list(name, text)
    if target in ("subject", "key"):
        return parse_template(name, text)
    if target == "timeout_seconds":
        return parse_positive(name, text, TIMEOUT_SECONDS_MAX)
    if target == "txn_version":
        return 0 if text == "0" else parse_positive(name, text, (1 << 62) - 1)
    if target in ("fails_on_unknown", "txn_same_partitions"):
        return parse_one_of(name, text, ("true", "false")) == "true"
    if not text:
        raise OptionError(name, "it is empty")
    return text


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
