"""The options of the format `jetstream`.

Owns their names, defaults and every check that needs no stream. Spark passes all options as text,
with case-insensitive names. An unknown option is an error, so that a typing error is never a silent
default.
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
    LOGIN_FIELDS,
    JobLogin,
    is_reference,
    spark_name,
    split_login,
)
from tradewind.spark.errors import OptionError
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
_NAMES: Final = {
    "stream": "stream",
    "path": "stream",
    "storedir": "store_dir",
    "encryptionkey": "encryption_key",
    "previousencryptionkey": "previous_encryption_key",
    "archive": "archive",
    "bucket": "bucket",
    "history": "history",
    "objectstore": "object_store",
    "account": "account",
    "servers": "servers",
    "context": "context",
    "readmode": "read_mode",
    "columns": "columns",
    "filtersubjects": "filter_subjects",
    "startingoffsets": "starting",
    "endingoffsets": "ending",
    "startingseq": "starting_seq",
    "startingtime": "starting_time_ns",
    "endingseq": "ending_seq",
    "endingtime": "ending_time_ns",
    "maxmsgspertrigger": "msgs_per_trigger_max",
    "maxbytespertrigger": "bytes_per_trigger_max",
    "minmsgspertrigger": "msgs_per_trigger_min",
    "maxtriggerdelay": "trigger_delay_ns",
    "minpartitions": "partitions_min",
    "failondataloss": "fails_on_data_loss",
    "pushdown": "pushdown",
    "tiers": "tiers",
    "timeoutseconds": "timeout_seconds",
    "ackconsumer": "ack_consumer",
    "usedby": "used_by",
}
# Names of the source for Kafka for the same, for messages: there is one name for a thing here.
_KAFKA_NAMES: Final = {
    "assign": "stream",
    "endingoffsetsbytimestamp": "endingOffsets",
    "endingtimestamp": "endingTime",
    "kafka.bootstrap.servers": "servers",
    "maxoffsetspertrigger": "maxMsgsPerTrigger",
    "minoffsetspertrigger": "minMsgsPerTrigger",
    "startingoffsetsbytimestamp": "startingOffsets",
    "startingtimestamp": "startingTime",
    "subscribe": "stream",
    "subscribepattern": "stream",
}
_NO_OPTIONS: Final = ("login", "is_followed", "is_sample")
# As users write them, for messages.
_SPELLINGS: Final = {
    "store_dir": "storeDir",
    "encryption_key": "encryptionKey",
    "previous_encryption_key": "previousEncryptionKey",
    "read_mode": "readMode",
    "object_store": "objectStore",
    "filter_subjects": "filterSubjects",
    "starting": "startingOffsets",
    "ending": "endingOffsets",
    "starting_seq": "startingSeq",
    "starting_time_ns": "startingTime",
    "ending_seq": "endingSeq",
    "ending_time_ns": "endingTime",
    "msgs_per_trigger_max": "maxMsgsPerTrigger",
    "bytes_per_trigger_max": "maxBytesPerTrigger",
    "msgs_per_trigger_min": "minMsgsPerTrigger",
    "trigger_delay_ns": "maxTriggerDelay",
    "partitions_min": "minPartitions",
    "fails_on_data_loss": "failOnDataLoss",
    "timeout_seconds": "timeoutSeconds",
    "ack_consumer": "ackConsumer",
    "used_by": "usedBy",
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options; None and 0 mean that nothing was said."""

    stream: tuple[str, ...] = ()
    store_dir: str = ""
    # References, which stay so in plans: `env:NAME` or `file:PATH`.
    encryption_key: str = ""
    previous_encryption_key: str = ""
    archive: str = ""
    bucket: str = ""
    history: bool = False
    object_store: str = ""
    account: str = "$G"
    servers: tuple[str, ...] = field(default=(), repr=False)
    login: JobLogin = field(default_factory=JobLogin)
    context: str = ""
    read_mode: str = "auto"
    columns: tuple[str, ...] = ()
    filter_subjects: tuple[str, ...] = ()
    starting: Positions | None = None
    ending: Positions | None = None
    starting_seq: int = 0
    starting_time_ns: int | None = None
    ending_seq: int = 0
    ending_time_ns: int | None = None
    msgs_per_trigger_max: int = 0
    bytes_per_trigger_max: int = 0
    msgs_per_trigger_min: int = 0
    trigger_delay_ns: int = TRIGGER_DELAY_NS
    partitions_min: int = 0
    fails_on_data_loss: bool | None = None
    pushdown: bool = False
    # The streams whose messages are read too that only their table has: those in two tiers
    # (`true`), any whose table has payloads (`any`), or none.
    tiers: str = "true"
    timeout_seconds: int = TIMEOUT_SECONDS
    ack_consumer: str = ""
    used_by: str = "spark"
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
    login, others = split_login(given)
    found: dict[str, object] = {"login": login}
    for name, text in others.items():
        target = _NAMES.get(name.lower())
        if target is None:
            if same := _KAFKA_NAMES.get(name.lower()):
                raise OptionError(name, f"unknown option; use {same}")
            known = ", ".join([*map(spelling, _field_names()), *map(spark_name, LOGIN_FIELDS)])
            raise OptionError(name, f"unknown option; valid options: {known}")
        found[target] = _parse(target, str(text).strip())
    options = _with_stream(SourceOptions(**found))  # type: ignore[arg-type]
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


def spelling(field: str) -> str:
    """The name of an option as users write it."""
    return _SPELLINGS.get(field, field)


def _field_names() -> list[str]:
    return [one.name for one in fields(SourceOptions) if one.name not in _NO_OPTIONS]


def _parse(field: str, text: str) -> object:
    name = spelling(field)
    if field in ("stream", "servers", "columns"):
        return parse_list(name, text)
    if field == "filter_subjects":
        subjects = parse_list(name, text)
        for subject in subjects:
            if not is_valid_subject(subject):
                raise OptionError(name, f"{subject!r} is not a subject")
        return subjects
    if field in ("encryption_key", "previous_encryption_key"):
        if not is_reference(text):
            raise OptionError(name, "plans show it, so it must be env:NAME or file:PATH")
        return text
    if field == "read_mode":
        return parse_one_of(name, text, READ_MODES)
    if field == "used_by":
        return parse_one_of(name, text, USERS)
    if field == "starting":
        return parse_positions(name, text, "earliest", parse_moment_ns)
    if field == "ending":
        return parse_positions(name, text, "latest", parse_moment_ns)
    if field == "tiers":
        return parse_one_of(name, text, TIERS)
    if field in ("fails_on_data_loss", "history", "pushdown"):
        return parse_one_of(name, text, ("true", "false")) == "true"
    if field in ("starting_time_ns", "ending_time_ns"):
        return parse_moment_ns(name, text)
    if field in ("starting_seq", "ending_seq") or field.startswith(("msgs_per", "bytes_per")):
        return parse_positive(name, text, SEQUENCE_MAX)
    if field == "trigger_delay_ns":
        return parse_delay_ns(name, text)
    if field == "timeout_seconds":
        return parse_positive(name, text, TIMEOUT_SECONDS_MAX)
    if field == "ack_consumer":
        if not is_valid_name(text):
            raise OptionError(name, f"{text!r} is not a name of a consumer")
        return text
    if field == "partitions_min":
        return parse_positive(name, text, PARTITIONS_MAX)
    return text


def parse_list(name: str, text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        # An address may hold a password.
        shown = "it" if name == "servers" else repr(text)
        raise OptionError(name, f"{shown} has an empty part; separate names by commas")
    return parts


def parse_one_of(name: str, text: str, allowed: tuple[str, ...]) -> str:
    """One of some words, in any case."""
    if text.lower() not in allowed:
        raise OptionError(name, f"{text!r} is not one of {', '.join(allowed)}")
    return text.lower()


def parse_positive(name: str, text: str, largest: int) -> int:
    """A whole number from 1 on."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= largest):
        raise OptionError(name, f"{text!r} is not a whole number from 1 to {largest}")
    return int(text)


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
