"""The check of payloads at the door of a stream, and the schemas of its account.

Owns the copy of an account's bucket of schemas, which follows the stream behind the bucket without
a subscription: each check asks whether that stream has changed. Every way into a stream ends in
`PublishChecks`, which asks a `SchemaKeeper`; copies of mirrors and sources do not pass there. A
schema that cannot be used, or a bucket that cannot be read, never stops a stream: such messages are
stored and counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tradewind.api.dead_letter_rules import HEADER_PREFIX, ORIGINAL_PREFIX
from tradewind.api.errors import STREAM_STORE_FAILED, ApiError
from tradewind.api.names import SCHEMA_KEY
from tradewind.api.own_errors import SCHEMA_INVALID, SCHEMA_VIOLATED
from tradewind.api.schema_rules import (
    COUNT,
    DEAD_LETTER,
    SchemaRule,
    check_letter_target,
    letter_pattern_of,
    schema_rule_of,
)
from tradewind.api.stream_types import SchemaChecks
from tradewind.durations import SECOND_NS
from tradewind.errors import StoreError
from tradewind.extra_packages import install_command
from tradewind.schemas.schema_documents import HEADER, KEY_PREFIX, STREAM
from tradewind.schemas.schema_errors import EXTRA, LIBRARIES, missing_libraries
from tradewind.schemas.schema_table import Outcome, SchemaTable, SchemaVerdict
from tradewind.store.contract import NotFoundError
from tradewind.stream import header_fields
from tradewind.subjects import is_subset_of_any

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig
    from tradewind.jetstream.companions import Wanted
    from tradewind.jetstream.deeds import Requester
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.stream.publish_checks import Publish

# What is read of a bucket at once; the rest follows with the next messages.
READ_BYTES_MAX: Final = 16_777_216
# Between two lines in the log about one stream.
LOG_EVERY_NS: Final = 60 * SECOND_NS
# A part of the reason in a header of a dead letter.
DETAIL_BYTES_MAX: Final = 400
_HEADER: Final = b"\r\n%s:" % HEADER.encode()
_PREFIX: Final = KEY_PREFIX.encode()
_GONE: Final = (b"\r\nKV-Operation: DEL", b"\r\nKV-Operation: PURGE", b"\r\nNats-Marker-Reason:")
_REASON: Final = f"{HEADER_PREFIX}Reason: schema".encode()


class AccountSchemas:
    """The schemas of one account, as its bucket has them."""

    def __init__(self, tenant: JetStreamAccount) -> None:
        self._tenant = tenant
        self._table = SchemaTable()
        self._origin: HostedStream | None = None
        # All that have a message, be it a version or a marker of a deleted one.
        self._keys: set[str] = set()
        self._seq = 0
        self._seen = (0, 0)
        # A disk that fails is not asked for each message.
        self._again_ns = 0
        self.problem = ""

    def current(self) -> SchemaTable:
        """The schemas as they are now."""
        origin = self._tenant.streams.get(STREAM)
        if origin is not self._origin:
            self._origin = origin
            self._table.clear()
            self._keys.clear()
            self._seq = 0
            self._seen = (0, 0)
            self._again_ns = 0
        if origin is None:
            self.problem = self._tenant.problems.get(STREAM, "")
            return self._table
        seen = (origin.stream.visible_seq, origin.stream.store.msgs)
        now_ns = origin.engine.turn.monotonic_ns
        if seen != self._seen and now_ns >= self._again_ns:
            try:
                self._read(origin, seen[0])
                self.problem = "" if self._seq >= seen[0] else "the bucket is being read"
            except StoreError as error:
                self.problem = str(error)
                self._again_ns = now_ns + SECOND_NS
            if self._seq >= seen[0]:
                self._seen = seen
        return self._table

    def _read(self, origin: HostedStream, visible: int) -> None:
        """Take what is new in the bucket, and drop what is gone; StoreError."""
        store = origin.stream.store
        size = 0
        while size < READ_BYTES_MAX:
            seq = store.next_sequence(self._seq + 1, (_PREFIX + b">",))
            if not seq or seq > visible:
                self._seq = max(visible, self._seq)
                break
            with suppress(NotFoundError):
                message = store.get(seq)
                size += len(message.payload) + len(message.header)
                key = message.subject[len(_PREFIX) :].decode("utf-8", "replace")
                is_gone = any(mark in message.header for mark in _GONE)
                self._keys.add(key)
                self._table.apply(key, None if is_gone else message.payload)
            self._seq = seq
        if len(self._keys) != store.msgs:
            for key in list(self._keys):
                if store.subject_state(_PREFIX + key.encode()) is None:
                    self._keys.discard(key)
                    self._table.apply(key, None)


class SchemaKeeper:
    """The checks of one stream; a companion of it."""

    def __init__(self, hosted: HostedStream, rule: SchemaRule) -> None:
        self._hosted = hosted
        self._rule = rule
        tenant = hosted.tenant
        if tenant.schemas is None:
            tenant.schemas = AccountSchemas(tenant)
        self._schemas = tenant.schemas
        self._checked = 0
        self._wrong = 0
        self._letters = 0
        self._unchecked = 0
        self._last_problem = ""
        self._log_after_ns = 0

    # ---------------------------------------------------------------- as the door of a stream

    def check(self, subject: bytes, header: bytes, payload: bytes) -> None:
        """See `SchemaDoor`."""
        named = ""
        if _HEADER in header:
            value = header.partition(_HEADER)[2].partition(b"\r\n")[0]
            named = value.decode("utf-8", "replace").strip()
        schemas = self._schemas
        table = schemas.current()
        verdict = table.check(subject.decode("utf-8", "surrogateescape"), payload, named)
        if verdict.outcome is Outcome.FREE:
            if schemas.problem:
                self._note_unchecked(f"bucket of schemas: {schemas.problem}")
            return
        self._checked += 1
        if verdict.outcome is Outcome.BROKEN:
            self._note_unchecked(f"schema {verdict.schema} cannot be used: {verdict.problem}")
        elif verdict.outcome is Outcome.INVALID:
            self._refuse(subject, verdict)

    def _refuse(self, subject: bytes, verdict: SchemaVerdict) -> None:
        self._wrong += 1
        # The place only: who reads logs and information may not be allowed to read messages.
        place = verdict.problem.partition(": ")[0]
        self._last_problem = (
            f"{subject.decode('utf-8', 'replace')[:200]}: {verdict.schema}: {place}"
        )
        self._log(f"a message does not obey its schema: {self._last_problem}")
        if self._rule.action != COUNT:
            raise SCHEMA_VIOLATED(schema=verdict.schema, err=verdict.problem)

    def _note_unchecked(self, problem: str) -> None:
        self._unchecked += 1
        self._last_problem = problem
        self._log(f"payloads are stored unchecked: {problem}")

    def _log(self, text: str) -> None:
        engine = self._hosted.engine
        if engine.turn.monotonic_ns >= self._log_after_ns:
            self._log_after_ns = engine.turn.monotonic_ns + LOG_EVERY_NS
            engine.log.warn(f"JetStream stream {self._hosted.place}: {text}")

    def bury(self, message: Publish, reply: bytes, error: ApiError) -> bool:
        """See `SchemaDoor`. The stream for dead letters answers the publisher."""
        if self._rule.action != DEAD_LETTER or not error.is_kind(SCHEMA_VIOLATED):
            return False
        if _REASON in message.header:
            return False  # a dead letter already: two streams would send it back and forth
        hosted = self._hosted
        subject = message.subject.decode("utf-8", "surrogateescape")
        target = self._target(self._rule.letter_subject(hosted.name, subject))
        if target is None:
            return False
        detail = error.description.encode("ascii", "replace")[:DETAIL_BYTES_MAX]
        header = letter_header(message, hosted.name, detail)
        letter = self._rule.letter_subject(hosted.name, subject).encode("utf-8", "surrogateescape")
        if hosted.config.no_ack:
            reply = b""
        self._letters += 1
        # Not now: this stream may be storing other messages.
        handler = partial(self._store, target)
        hosted.engine.turn.defer(handler, letter, reply, header, message.payload)
        return True

    def _target(self, subject: str) -> HostedStream | None:
        """The stream for dead letters, if it can store this one."""
        target = self._hosted.tenant.streams.get(self._rule.stream)
        if target is None or not target.stream.is_active:
            return None
        return target if is_subset_of_any(subject, target.config.subjects) else None

    def _store(
        self, target: HostedStream, subject: bytes, reply: bytes, header: bytes, payload: bytes
    ) -> None:
        if target.stream.is_active:
            target.stream.ingest.submit(subject, reply, header, payload)
            return
        refusal = STREAM_STORE_FAILED(err=f"stream {self._rule.stream} is gone")
        self._hosted.stream.slow_path.refuse(reply, refusal)

    # ---------------------------------------------------------------- as a companion

    def attach(self) -> None:
        """See `Companion`."""
        self._hosted.stream.checks.door = self
        # What they hold was not checked when it came.
        self._hosted.stream.slow_path.staging.clear()
        # Importing takes tenths of a second, which no publisher should wait for.
        self._hosted.engine.workers.submit(load_libraries, _ignore)

    def changed(self) -> None:
        """See `Companion`: the rule is the same as before."""

    def kept(self) -> None:
        """See `Companion`."""

    def tick(self) -> None:
        """See `Companion`."""

    @property
    def next_deadline_ns(self) -> int:
        """See `Companion`."""
        return 0

    def close(self, *, for_good: bool) -> None:
        """See `Companion`: what still arrives at the end of a server is checked, too."""
        if for_good:
            self._hosted.stream.checks.door = None

    def describe(self) -> Mapping[str, Any]:
        """See `Companion`."""
        return {
            "schema_checks": SchemaChecks(
                action=self._rule.action,
                checked=self._checked,
                wrong=self._wrong,
                dead_letters=self._letters,
                unchecked=self._unchecked,
                last_problem=self._last_problem,
            )
        }


def letter_header(message: Publish, stream: str, detail: bytes) -> bytes:
    """The header of a dead letter: fields that mean something to a stream have another name."""
    original = b"\r\n%sNats-" % ORIGINAL_PREFIX.encode()
    header = message.header.replace(b"\r\nNats-", original)
    prefix = HEADER_PREFIX.encode()
    added = (
        (b"Stream", stream.encode("utf-8", "surrogateescape")),
        (b"Subject", message.subject),
        (b"Reason", b"schema"),
        (b"Detail", b" ".join(detail.split())),
    )
    fields = b"".join(b"%s%s: %s\r\n" % (prefix, name, value) for name, value in added)
    return header_fields.add_fields(header, fields)


def keepers_of(hosted: HostedStream) -> Wanted:
    """The companion that checks the payloads of a stream."""
    try:
        rule = schema_rule_of(hosted.config.metadata)
    except ApiError as error:  # nats-server has stored it, which ignores these keys
        hosted.engine.log.error(f"JetStream stream {hosted.place}: {error.description}")
        return {}
    return {} if rule is None else {("schema", rule): partial(SchemaKeeper, hosted, rule)}


def check_schema_settings(
    config: StreamConfig,
    tenant: JetStreamAccount,
    requester: Requester | None = None,
) -> None:
    """ApiError unless a stream can check payloads here, and a requester may have it store dead
    letters. Settings that a stream has already need no permission.
    """
    rule = schema_rule_of(config.metadata)
    if rule is None:
        return
    _check_libraries()
    check_letter_target(config, tenant.configs.get(rule.stream))
    known = tenant.configs.get(config.name)
    is_known = known is not None and _is_same_rule(known, rule)
    if requester is not None and rule.action == DEAD_LETTER and not is_known:
        requester.check_all(letter_pattern_of(rule, config.name))


def check_template_settings(config: StreamConfig, requester: Requester) -> None:
    """The same for the streams of a template, whatever their names."""
    rule = schema_rule_of(config.metadata)
    if rule is None:
        return
    _check_libraries()
    if rule.action == DEAD_LETTER:
        requester.check_all(letter_pattern_of(rule, "*"))


def _check_libraries() -> None:
    if missing := missing_libraries():
        text = f"needs {', '.join(missing)}: {install_command(EXTRA)}"
        raise SCHEMA_INVALID(key=SCHEMA_KEY, err=text)


def _is_same_rule(config: StreamConfig, rule: SchemaRule) -> bool:
    with suppress(ApiError):
        return schema_rule_of(config.metadata) == rule
    return False


def load_libraries() -> None:
    """Import the libraries of all formats."""
    for library in LIBRARIES.values():
        with suppress(ImportError):
            importlib.import_module(library)
    with suppress(ImportError):
        importlib.import_module("google.protobuf.message_factory")


def _ignore(_error: Exception | None) -> None:
    """Nothing to do: a library that is missing is noticed by the check."""
