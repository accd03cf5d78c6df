"""Opens everything in the store when a server starts.

Owns the handling of streams and consumers that cannot be opened: they are left unchanged, and
reported in the log, in monitoring, and in responses about them. All others are opened normally. It
never deletes anything, except to finish an interrupted deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tradewind.api.configs import stream_config_from_dict
from tradewind.api.dead_letter_rules import EXPIRED, ON_KEY
from tradewind.api.versioning import unsupported_reason
from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR
from tradewind.jetstream.consumer_catalog import open_consumer
from tradewind.jetstream.engine import run_each
from tradewind.jetstream.hosted import HostedStream
from tradewind.jetstream.read_only import freeze
from tradewind.jetstream.stream_catalog import stream_context
from tradewind.store.folder.shelf import sizes_of_shelves
from tradewind.store.format.layout import JOURNAL_KEY_FILE, JOURNAL_PREFIX
from tradewind.stream.half_batch import BATCHES
from tradewind.stream.stream_opening import open_stream

if TYPE_CHECKING:
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.store.folder.recover import RecoveryReport
    from tradewind.store.folder.stream_folder import (
        SkippedFolder,
        StoredConsumer,
        StoreRoot,
        StreamFolder,
    )
    from tradewind.store.repair.units import UnitRule
    from tradewind.stream.message_ids import MessageIds

# A stream larger than this says how far it has come.
PROGRESS_BYTES: Final = 1024 * 1024 * 1024
LOST_NAMED_MAX: Final = 10


def recover(
    engine: JetStreamEngine,
    root: StoreRoot,
    run_all: Callable[[list[Callable[[], None]]], None] = run_each,
) -> None:
    """Open all streams of all accounts that have JetStream; `run_all` may run its calls in
    parallel.
    """
    try:
        for path in () if engine.is_read_only else root.finish_deletions():
            engine.log.notice(f"  Removed {path}, left by an interrupted deletion or restore")
    except StoreError as error:  # it takes room, but does no harm
        engine.log.error(f"JetStream cannot remove what a deletion has left: {error}")
    try:
        names = root.accounts()
    except StoreError as error:
        engine.log.error(f"JetStream cannot read {root.folder}: {error}")
        for tenant in engine.accounts.values():
            tenant.problems[_label(tenant)] = str(error)
        return
    for name in names:
        if name not in engine.accounts:
            engine.log.warn(
                f"JetStream is not enabled for account {name!r}, its streams stay closed"
            )
    for tenant in engine.accounts.values():
        if tenant.name in names or _may_have_templates(root, tenant.name):
            recover_account(engine, tenant, root, run_all)


def _may_have_templates(root: StoreRoot, account: str) -> bool:
    """Whether the account may have templates; true also if the disk fails, which `recover_account`
    reports.
    """
    try:
        return root.has_templates(account)
    except StoreError:
        return True


def _label(tenant: JetStreamAccount) -> str:
    """The label under which a problem of all streams of an account is listed."""
    return f"account {tenant.name}"


def recover_account(
    engine: JetStreamEngine,
    tenant: JetStreamAccount,
    root: StoreRoot,
    run_all: Callable[[list[Callable[[], None]]], None] = run_each,
) -> None:
    """Open the streams of one account that are not open yet."""
    label = _label(tenant)
    try:
        folders = root.folders(tenant.name)
        has_templates = root.has_templates(tenant.name)
        # Journaled messages are stored again under their sequences, which must not be taken.
        has_journal = _has_journal(root, tenant.name)
        units = replace(BATCHES, ends_at_hole=has_journal)
        tenant.problems.pop(label, None)
    except StoreError as error:
        tenant.problems[label] = str(error)
        engine.log.error(f"JetStream cannot read the streams of account {tenant.name!r}: {error}")
        return
    if has_templates:
        from tradewind.jetstream.template_streams import load_templates

        load_templates(engine, tenant)
    opened: list[HostedStream] = []
    for folder in folders:
        if folder.stream in tenant.configs:
            continue
        try:
            with root.disk.remembering():
                hosted = _recover_found(engine, tenant, folder, units)
            if hosted is not None:
                opened.append(hosted)
        except Exception as error:
            place = f"'{tenant.name} > {folder.stream}'"
            tenant.problems[folder.stream] = reason = _reason(engine, error, place)
            engine.log.error(f"JetStream cannot open stream {place}: {reason}")
    if has_journal and tenant.transactions is None:
        _repeat_transactions(engine, tenant)
    # Streams that copy this one need its messages too, and may have been opened after it.
    for hosted in opened:
        freeze(hosted) if engine.is_read_only else hosted.recovered()
    if not engine.is_read_only:
        _secure(opened, run_all)


def _recover_found(
    engine: JetStreamEngine, tenant: JetStreamAccount, folder: StreamFolder, units: UnitRule
) -> HostedStream | None:
    """Open the stream in a folder; None if there is none, or none that this version can serve."""
    if folder.is_unfinished():
        return None  # a creation that was cut off; the next one of this name uses it
    meta = folder.read_meta()
    stream_config_from_dict(meta.config)  # names what does not fit
    reason = unsupported_reason(meta.config.get("metadata"), meta.unknown_fields)
    if reason is None:
        return recover_stream(engine, tenant, folder, units=units)
    tenant.problems[folder.stream] = reason
    engine.log.warn(f"  Detected unsupported stream '{tenant.name} > {folder.stream}': {reason}")
    return None


def _repeat_transactions(engine: JetStreamEngine, tenant: JetStreamAccount) -> None:
    """Complete the transactions that a crash has interrupted."""
    label = f"journal of account {tenant.name}"
    try:
        from tradewind.jetstream.transactions.journal_replay import replay

        replay(engine, tenant)
        tenant.problems.pop(label, None)
    except Exception as error:
        tenant.problems[label] = reason = _reason(engine, error, f"'{tenant.name}'")
        engine.log.error(f"JetStream cannot repeat transactions of {tenant.name!r}: {reason}")


def _has_journal(root: StoreRoot, account: str) -> bool:
    """Whether there is a journal to replay; StoreError if that cannot be determined."""
    folder = f"{root.folder}/{account}"
    return root.disk.is_directory(folder) and any(
        name.startswith(JOURNAL_PREFIX) and name != JOURNAL_KEY_FILE
        for name in root.disk.list_directory(folder)
    )


def _secure(
    opened: list[HostedStream], run_all: Callable[[list[Callable[[], None]]], None]
) -> None:
    """Sync the files that a killed server has left unsynced."""
    stored = [hosted.stream.files for hosted in opened]
    chores = [files.chores for files in stored if files is not None and files.chores.unsafe_files]
    run_all([each.secure for each in chores])
    for each in chores:
        with suppress(StoreError):
            each.secured()  # publishers are notified of a failure


def recover_stream(
    engine: JetStreamEngine,
    tenant: JetStreamAccount,
    folder: StreamFolder,
    ids: MessageIds | None = None,
    units: UnitRule = BATCHES,
    kept: Mapping[Any, int] | None = None,
) -> HostedStream:
    """Open a stream with its consumers, as they are on disk; `ids` as for `open_stream`.

    `kept` are the sizes of what is stored beside it, if the caller knows them.
    """
    label = f"'{tenant.name} > {folder.stream}'"
    engine.log.notice(f"  Starting restore for stream {label}")
    began_ns = engine.broker.monotonic_ns()
    # One of them may have a use for what has expired meanwhile.
    consumers = folder.consumers()
    stream, report = open_stream(
        stream_context(engine, tenant, folder.stream),
        folder,
        engine.turn.now_ns,
        ids,
        progress=_RecoveryProgress(engine, label),
        secures=False,
        units=units,
        expires=not (engine.is_read_only or _keep_expired(consumers[0])),
        seen_seq=_seen_sequence(consumers[0]),
    )
    if kept is None:
        kept = sizes_of_shelves(folder.disk, folder.path)
    hosted = HostedStream(engine, tenant, stream, kept)
    hosted.attach()
    took_ms = (engine.broker.monotonic_ns() - began_ns) // 1_000_000
    count = f"{stream.store.msgs:,}"
    engine.log.notice(f"  Restored {count} messages for stream {label} in {took_ms}ms")
    _log_damage(engine, label, report)
    if engine.root is not None and engine.root.ring is not None:
        consumers = folder.consumers()  # opening an encrypted stream may have written them anew
    _recover_consumers(engine, hosted, *consumers)
    return hosted


def _seen_sequence(consumers: list[StoredConsumer]) -> int:
    """The highest sequence that a consumer has delivered; a position that was only configured does
    not count.
    """
    begun = (stored.state for stored in consumers if stored.state.delivered.consumer_seq)
    return max((state.delivered.stream_seq for state in begun), default=0)


def _keep_expired(consumers: list[StoredConsumer]) -> bool:
    return any(
        EXPIRED in (stored.meta.config.get("metadata") or {}).get(ON_KEY, "")
        for stored in consumers
    )


class _RecoveryProgress:
    """Logs the progress of a long opening in regular steps."""

    def __init__(self, engine: JetStreamEngine, label: str) -> None:
        self._engine = engine
        self._label = label
        self._next_bytes = PROGRESS_BYTES

    def __call__(self, done_bytes: int, all_bytes: int) -> None:
        """Called by the store repeatedly."""
        if done_bytes >= self._next_bytes:
            self._next_bytes = done_bytes + PROGRESS_BYTES
            percent = done_bytes * 100 // max(all_bytes, 1)
            self._engine.log.notice(f"  Reading stream {self._label}: {percent} %")


def _log_damage(engine: JetStreamEngine, label: str, report: RecoveryReport) -> None:
    for entry in report.damage:
        if not entry.torn:
            engine.log.error(
                f"  Stream {label}: {entry.size} damaged bytes in block {entry.block} at byte"
                f" {entry.offset}, {_fate(engine, entry.saved_as)}"
            )
    if report.lost:
        shown = ", ".join(map(str, report.lost[:LOST_NAMED_MAX]))
        more = "" if len(report.lost) <= LOST_NAMED_MAX else ", ..."
        engine.log.error(f"  Stream {label}: lost messages {shown}{more}")
    for note in report.notes:
        engine.log.warn(f"  Stream {label}: {note}")


def _fate(engine: JetStreamEngine, saved_as: str) -> str:
    return "left as they are" if engine.is_read_only else f"saved as {saved_as}"


def _recover_consumers(
    engine: JetStreamEngine,
    hosted: HostedStream,
    found: list[StoredConsumer],
    skipped: list[SkippedFolder],
) -> None:
    label = f"{hosted.tenant.name} > {hosted.name}"
    if found:
        engine.log.notice(f"  Recovering {len(found)} consumers for stream - '{label}'")
    for entry in skipped:
        hosted.consumer_problems[entry.path.rpartition("/")[2]] = entry.reason
        engine.log.error(f"JetStream cannot open a consumer of '{label}': {entry.reason}")
    for stored in found:
        if stored.problem:
            engine.log.warn(f"JetStream consumer '{label} > {stored.meta.name}': {stored.problem}")
        meta = stored.meta
        reason = unsupported_reason(meta.config.get("metadata"), meta.unknown_fields)
        if reason is not None:
            hosted.consumer_problems[meta.name] = reason
            engine.log.warn(f"  Detected unsupported consumer '{label} > {meta.name}': {reason}")
            continue
        try:
            open_consumer(engine, hosted, stored)
        except Exception as error:
            place = f"'{label} > {stored.meta.name}'"
            hosted.consumer_problems[stored.meta.name] = reason = _reason(engine, error, place)
            engine.log.error(f"JetStream cannot open consumer {place}: {reason}")


def _reason(engine: JetStreamEngine, error: Exception, place: str) -> str:
    """The reason why a stream or consumer stays closed; an internal error does not affect the
    others.
    """
    if isinstance(error, StoreError | ValueError):
        return str(error)
    engine.faults.contain("start", error, f"of {place}")
    return INTERNAL_ERROR
