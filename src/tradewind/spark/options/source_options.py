"""The options of the format `jetstream`.

Owns one row per option (`option_rows`) and every check that needs no stream. Spark passes all
options as text, with case-insensitive names. An unknown option is an error, so that a typing error
is never a silent default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final

from tradewind.api.names import KV_STREAM, OBJECT_STREAM, is_valid_name
from tradewind.api.times import parse_time
from tradewind.durations import MINUTE_NS, parse_duration_ns
from tradewind.spark.columnar.columns import BUCKET, MESSAGES, OBJECTS, Column, column_of
from tradewind.spark.connections.logins import (
    JobLogin,
    is_reference,
)
from tradewind.spark.errors import OptionError
from tradewind.spark.options.option_rows import (
    Parser,
    any_text,
    one_of,
    option,
    parse_given,
    rows_of,
    text_list,
    whole_number,
    yes_or_no,
)
from tradewind.spark.options.positions import (
    SEQUENCE_MAX,
    Position,
    Positions,
    check_wanted,
    parse_positions,
)
from tradewind.subjects import is_valid_subject

READ_MODES: Final = ("auto", "blocks", "network", "backup")
TIERS: Final = ("true", "false", "any")
SERVER_MODES: Final = ("network", "backup")
PARTITIONS_MAX: Final = 100_000
# How long a server that is away is waited for.
TIMEOUT_SECONDS: Final = 30
TIMEOUT_SECONDS_MAX: Final = 3600
# The programs that read: errors advise only what it offers, see `data_loss`.
USERS: Final = ("spark", "pipeline", "sql", "job", "frames")
# How long a batch waits for its minimum of messages.
TRIGGER_DELAY_NS: Final = 15 * MINUTE_NS


def _subjects(name: str, text: str) -> tuple[str, ...]:
    """Subjects or patterns that are separated by commas."""
    subjects = text_list(name, text)
    for subject in subjects:
        if not is_valid_subject(subject):
            raise OptionError(name, f"{subject!r} is not a subject")
    return subjects


def _reference(name: str, text: str) -> str:
    """A reference to a secret, which stays one in plans."""
    if not is_reference(text):
        raise OptionError(name, "plans show it, so it must be env:NAME or file:PATH")
    return text


def _consumer(name: str, text: str) -> str:
    """The name of a consumer."""
    if not is_valid_name(text):
        raise OptionError(name, f"{text!r} is not a name of a consumer")
    return text


def parse_delay_ns(name: str, text: str) -> int:
    """Nanoseconds of a duration above 0."""
    duration_ns = parse_duration_ns(text)
    if duration_ns is None or duration_ns <= 0:
        raise OptionError(
            name, f"{text[:64]!r} is not a duration above 0 such as 90s, 15m or 1h30m"
        )
    return duration_ns


def parse_moment_ns(name: str, text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time, or of ISO 8601 without zone, which is UTC.

    A time that 64 bits do not hold, before 1677 and from 2262 on, is as far as they go.
    """
    try:
        return _held(parse_time(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(name, f"{text!r} is not a time such as 2026-11-16T08:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _held(moment_ns(moment))


def _held(time_ns: int) -> int:
    return min(max(time_ns, -(1 << 63)), (1 << 63) - 1)


def moment_ns(moment: datetime) -> int:
    """Nanoseconds since 1970, exactly."""
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return ((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds) * 1000


def _positions(others: str) -> Parser:
    """Positions of streams, with one for those that are not named."""
    return lambda name, text: parse_positions(name, text, others, parse_moment_ns)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options; None and 0 mean that nothing was said."""

    stream: tuple[str, ...] = option(
        "stream",
        text_list,
        (),
        "a name, several names separated by commas, or a pattern such as `ORDERS_*`; also the"
        " argument of `load`",
        also=("path",),
        instead_of=("assign", "subscribe", "subscribepattern"),
    )
    servers: tuple[str, ...] = option(
        "servers",
        text_list,
        (),
        "addresses, as for [the client](../reference/CLIENT.md)",
        instead_of=("kafka.bootstrap.servers",),
        is_shown=False,
    )
    context: str = option(
        "context", any_text, "", "a context, as for [the client](../reference/CLIENT.md)"
    )
    login: JobLogin = field(default_factory=JobLogin)
    store_dir: str = option(
        "storeDir",
        any_text,
        "",
        "the store folder of the server. With `servers` too, files are read, and a running"
        " nats-server is asked [what they do not say](#known-gaps)",
    )
    account: str = option("account", any_text, "$G", "with `storeDir`: the account, default `$G`")
    # References, which stay so in plans: `env:NAME` or `file:PATH`.
    encryption_key: str = option(
        "encryptionKey",
        _reference,
        "",
        "with `storeDir`: `env:NAME` or `file:PATH` of the key of"
        " [encrypted streams](ENCRYPTION.md); a key itself is refused",
    )
    previous_encryption_key: str = option(
        "previousEncryptionKey", _reference, "", "the same for the key before"
    )
    archive: str = option("archive", any_text, "", "a backup")
    read_mode: str = option(
        "readMode", one_of(*READ_MODES), "auto", "[how to read](#read-modes); default `auto`"
    )
    columns: tuple[str, ...] = option(
        "columns",
        text_list,
        (),
        "read only these columns, which is faster; `schema` of the reader does the same",
    )
    filter_subjects: tuple[str, ...] = option(
        "filterSubjects", _subjects, (), "subjects or patterns, separated by commas"
    )
    starting: Positions | None = option(  # noqa: RUF009 - as dataclasses.field
        "startingOffsets",
        _positions("earliest"),
        None,
        "`earliest` (default), `latest` (streaming queries only), or JSON with a position per"
        " stream, see below",
        instead_of=("startingoffsetsbytimestamp",),
    )
    ending: Positions | None = option(  # noqa: RUF009 - as dataclasses.field
        "endingOffsets",
        _positions("latest"),
        None,
        "where a batch ends: `latest` (default) or JSON",
        instead_of=("endingoffsetsbytimestamp",),
    )
    starting_seq: int = option(
        "startingSeq", whole_number(SEQUENCE_MAX), 0, "the sequence to start at in all streams"
    )
    starting_time_ns: int | None = option(
        "startingTime",
        parse_moment_ns,
        None,
        "the time to start at in all streams, written `2026-11-16T08:00:00Z`",
        instead_of=("startingtimestamp",),
    )
    ending_seq: int = option(
        "endingSeq", whole_number(SEQUENCE_MAX), 0, "the last sequence of a batch in all streams"
    )
    ending_time_ns: int | None = option(
        "endingTime",
        parse_moment_ns,
        None,
        "the time at which a batch ends in all streams",
        instead_of=("endingtimestamp",),
    )
    msgs_per_trigger_max: int = option(
        "maxMsgsPerTrigger",
        whole_number(SEQUENCE_MAX),
        0,
        "maximum number of messages of a micro-batch",
        instead_of=("maxoffsetspertrigger",),
    )
    bytes_per_trigger_max: int = option(
        "maxBytesPerTrigger",
        whole_number(SEQUENCE_MAX),
        0,
        "maximum size of a micro-batch; always at least one message",
    )
    msgs_per_trigger_min: int = option(
        "minMsgsPerTrigger",
        whole_number(SEQUENCE_MAX),
        0,
        "delay a micro-batch until there are this many messages",
        instead_of=("minoffsetspertrigger",),
    )
    trigger_delay_ns: int = option(
        "maxTriggerDelay",
        parse_delay_ns,
        TRIGGER_DELAY_NS,
        "how long `minMsgsPerTrigger` may delay it; default `15m`",
    )
    partitions_min: int = option(
        "minPartitions",
        whole_number(PARTITIONS_MAX),
        0,
        "minimum number of tasks; default one per 128 MiB, and at least the number of cores",
    )
    fails_on_data_loss: bool | None = option(
        "failOnDataLoss",
        yes_or_no,
        None,
        "what to do about [data loss](#data-loss). `true`: fail and report the lost range; `false`:"
        " log a warning. Not set: `true`, except for the head of a stream in a batch",
    )
    pushdown: bool = option(
        "pushdown", yes_or_no, False, "`true`: evaluate conditions while decoding, see below"
    )
    tiers: str = option(
        "tiers",
        one_of(*TIERS),
        "true",
        "`true` (default): a batch also reads what only the [table](TABLES.md#reading) of a stream"
        " with `tiers` has; `any`: of any stream whose table keeps payloads; `false`: only what the"
        " stream has",
    )
    timeout_seconds: int = option(
        "timeoutSeconds",
        whole_number(TIMEOUT_SECONDS_MAX),
        TIMEOUT_SECONDS,
        f"how long to wait for a server that is away; default {TIMEOUT_SECONDS}",
    )
    ack_consumer: str = option(
        "ackConsumer",
        _consumer,
        "",
        "a durable consumer that tracks what the query has committed, see [below](#acknowledging)",
    )
    bucket: str = option("bucket", any_text, "", "a key-value [bucket](#buckets-and-objects)")
    history: bool = option(
        "history", yes_or_no, False, "`true`: all changes of the bucket that it still has"
    )
    object_store: str = option(
        "objectStore", any_text, "", "an [object store](#buckets-and-objects) as a table"
    )
    used_by: str = option(
        "usedBy",
        one_of(*USERS),
        "spark",
        "`spark` (default), `pipeline`, `sql` or `job`: set by the commands of Tradewind, so that"
        " their errors only suggest what they offer",
    )
    # Not options: whether a streaming query reads, and whether some of the messages will do.
    is_followed: bool = False
    is_sample: bool = False

    def is_said(self, name: str) -> bool:
        """Whether a field is another one than without its option."""
        default = next(one.default for one in fields(self) if one.name == name)
        return bool(getattr(self, name) != default)

    def start_of(self, stream: str) -> Position:
        """Where the read of a stream begins."""
        if self.starting is not None:
            return self.starting.of(stream)
        return Position("earliest", self.starting_seq, self.starting_time_ns)

    def end_of(self, stream: str) -> Position:
        """Where the read of a stream ends, if it is a batch."""
        if self.ending is not None:
            return self.ending.of(stream)
        return Position("latest", self.ending_seq, self.ending_time_ns)

    @property
    def is_table(self) -> bool:
        """Whether the rows are not messages."""
        return bool(self.bucket or self.object_store)

    @property
    def table_columns(self) -> Mapping[str, Column[Any]]:
        """All columns of what is read: messages, a bucket or an object store."""
        if self.bucket:
            return BUCKET
        return OBJECTS if self.object_store else MESSAGES


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of one read; OptionError names the one that is wrong."""
    found: dict[str, Any] = parse_given(SourceOptions, given)
    options = _with_stream(SourceOptions(**found))
    for column in options.columns:
        column_of(options.table_columns, column)
        if options.columns.count(column) > 1:
            raise OptionError("columns", f"{column!r} is named twice")
    _check_together(options)
    return options


def _with_stream(options: SourceOptions) -> SourceOptions:
    """A bucket or an object store is a stream whose name follows from its own."""
    named = [name for name in ("stream", "bucket", "object_store") if getattr(options, name)]
    if len(named) > 1:
        raise OptionError(spelling(named[1]), f"use {spelling(named[0])} or this, not both")
    if options.history and not options.bucket:
        raise OptionError("history", "only a bucket has one")
    if options.bucket:
        return replace(options, stream=(f"{KV_STREAM}{options.bucket}",))
    if options.object_store:
        return replace(options, stream=(f"{OBJECT_STREAM}{options.object_store}",))
    return options


def spelling(name: str) -> str:
    """The name of an option as users write it, of its field."""
    return rows_of(SourceOptions)[name].name


def _check_together(options: SourceOptions) -> None:
    _check_bounds(options)
    _check_triggers(options)
    if options.archive:
        if options.store_dir or options.servers or options.read_mode in SERVER_MODES:
            raise OptionError("archive", "a backup cannot be combined with storeDir or servers")
        return
    if not options.stream:
        raise OptionError(
            "stream", "specify which stream to read: a name, several, or a pattern (*)"
        )
    if options.read_mode == "blocks" and not options.store_dir:
        raise OptionError("storeDir", "readMode blocks needs the store folder of the server")
    mode = options.read_mode
    if mode in SERVER_MODES and not (options.servers or options.context):
        raise OptionError("servers", f"readMode {mode} needs an address, such as nats://host:4222")
    if mode == "backup" and options.is_table:
        raise OptionError("readMode", "a bucket or an object store is read by network, not backup")
    if options.ack_consumer and not (options.servers or options.context):
        raise OptionError("servers", "ackConsumer needs the address of the server")
    if not (options.store_dir or options.servers or options.context):
        raise OptionError("servers", "specify where the stream is: servers, context or storeDir")


def _check_triggers(options: SourceOptions) -> None:
    least, most = options.msgs_per_trigger_min, options.msgs_per_trigger_max
    if options.is_said("trigger_delay_ns") and not least:
        raise OptionError("maxTriggerDelay", "it requires minMsgsPerTrigger")
    if most and least > most:
        text = f"{least} is more than maxMsgsPerTrigger allows, {most}"
        raise OptionError("minMsgsPerTrigger", text)


def _check_bounds(options: SourceOptions) -> None:
    """One way at a time to say where a read begins, and where it ends."""
    for words in (
        ("starting", "starting_seq", "starting_time_ns"),
        ("ending", "ending_seq", "ending_time_ns"),
    ):
        # A batch that ends at a sequence or at a time ends with whatever is first.
        given = [word for word in words if options.is_said(word)]
        if len(given) > 1 and given != ["ending_seq", "ending_time_ns"]:
            first, second = spelling(given[0]), spelling(given[1])
            raise OptionError(second, f"use {first} or {second}, not both")
    check_wanted("startingOffsets", options.starting, options.stream)
    check_wanted("endingOffsets", options.ending, options.stream)
