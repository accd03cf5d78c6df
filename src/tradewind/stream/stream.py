"""A stream: its parts, and their life.

Owns the store of one stream, its subjects in the account and its life cycle: created or opened,
active, updated, closed or deleted. It makes the parts, gives them its configuration, and knows when
one of them has something to do:

    Ingest          takes every message, and stores what is not unusual     Schedules   what is due
    SlowPath        takes the rest: checks, batches, copies                 Upkeep      removals
    MessageStorage  stores it, and does what that brings about              DirectGet   readers
    CommitPath      makes changes durable, then answers                     MessageIds  duplicates

It never takes a message itself, and never knows its consumers: the engine informs it of interest,
and asks it for messages.

Replies to publishers wait until their message is as durable as promised: in memory that is the end
of the turn, in files the end of a commit, see `commit_path`. Until then no reader sees a message
that a power failure could remove: `visible_seq`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from tradewind.api import errors
from tradewind.api.configs import stream_config_from_dict, stream_config_to_dict
from tradewind.api.legacy_marks import legacy_of
from tradewind.api.names import has_schema_rule
from tradewind.api.stream_types import (
    DiscardPolicy,
    PersistMode,
    RetentionPolicy,
    StreamConfig,
)
from tradewind.durations import format_duration
from tradewind.errors import StoreError
from tradewind.route.mapping import SubjectMapping, compile_mapping
from tradewind.store.commits.syncer import SyncMode
from tradewind.store.contract import limits_of
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.time_files import read_schedule_times
from tradewind.store.format.meta import StreamMeta
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.stamps_ahead import is_any_ahead, note_ahead
from tradewind.stream import stream_queries
from tradewind.stream.closed_subjects import ClosedSubjects
from tradewind.stream.commit_path import CommitPath
from tradewind.stream.direct_gets import DirectGet
from tradewind.stream.ingest import Ingest
from tradewind.stream.message_ids import MessageIds
from tradewind.stream.publish_checks import PublishChecks
from tradewind.stream.reply_bodies import ReplyBodies, or_stored
from tradewind.stream.schedule_intake import ScheduleIntake
from tradewind.stream.schedules import Schedules
from tradewind.stream.slow_path import SlowPath
from tradewind.stream.storing import MessageStorage
from tradewind.stream.stream_context import StreamContext
from tradewind.stream.upkeep import ConsumerInterest, Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from tradewind.api.request_types import MsgGetRequest
    from tradewind.api.responses import StoredMessage
    from tradewind.api.stream_types import RePublish, StreamState, SubjectTransform
    from tradewind.store.files.creation import Creation
    from tradewind.store.folder.stream_folder import StreamFolder

IDS_LATE_NS = 1_000_000_000
# Ids that have left the window go in steps.
IDS_EXPIRED_PER_STEP = 16_384
# This many messages are searched for ids before others have their turn.
IDS_PER_STEP = 5_000

# The work that one step of a purge may spend on the search for messages.
PURGE_WORK_NS: Final = 2_000_000


class Stream:
    """A stream. `files` and `folder` are None for a stream in memory."""

    def __init__(
        self,
        context: StreamContext,
        meta: StreamMeta,
        store: MessageStore,
        files: FileStore | None = None,
        folder: StreamFolder | None = None,
        ids: MessageIds | None = None,
    ) -> None:
        self.context = context
        self.meta = meta
        self.config = stream_config_from_dict(meta.config)
        self.name = self.config.name
        self.account = context.account
        self.created_ns = meta.created_ns or 0
        self.store = store
        self.files = files
        self.folder = folder
        self.turn = context.router.turn
        self.ids = ids or MessageIds(self.config.duplicate_window, context.chance.getrandbits(64))
        is_legacy = bool(legacy_of(self.config.metadata))
        self._bodies = ReplyBodies(self.name, context.domain, is_legacy=is_legacy)
        self.ingest = Ingest(
            context.router,
            context.account,
            store,
            self.ids,
            self._bodies.stored,
            self._bodies.refused(errors.STREAM_TOO_MANY_REQUESTS()),
            context.waiting_msgs_max,
            context.waiting_bytes_max,
        )
        self.ingest.stream = self
        self.commits = CommitPath(self, self.ingest, files)
        self.storing = MessageStorage(self, self.ingest, self.turn)
        self.checks: PublishChecks = PublishChecks(
            self.config, store, self.ids, context.resources, self.is_wanted
        )
        self.slow_path = SlowPath(
            self.name, context, self.ingest, self._bodies, self.checks, self.storing
        )
        self.ingest.slow_path = self.slow_path
        self.ingest.staging = self.slow_path.staging
        self.upkeep = Upkeep(store, self.commits, self.turn, self.slow_path.mark_expired)
        self.schedules: Schedules | None = None
        self.direct = DirectGet(
            self.name,
            self.ingest,
            context.account,
            context.router,
            context.direct_bytes_max,
        )
        store.created_ns = self.created_ns
        self.is_active = False
        self._tokens: dict[str, int] = {}
        self._reported: StoreError | None = None
        if folder is not None:
            folder.is_lazy = self.sync_mode is not SyncMode.ALWAYS
        self._configure()

    @property
    def place(self) -> str:
        """The stream's account and name, as the log shows them."""
        return f"'{self.account.name} > {self.name}'"

    @property
    def interest(self) -> ConsumerInterest | None:
        """The consumers of the stream; None: there are none."""
        return self.upkeep.interest

    @interest.setter
    def interest(self, interest: ConsumerInterest | None) -> None:
        self.upkeep.interest = interest

    def is_wanted(self, subject: bytes) -> bool:
        """Whether a message of this subject would have a consumer, where that matters."""
        return self.interest is not None and self.interest.has_interest(subject)

    # ---------------------------------------------------------------- life

    @classmethod
    def in_memory(cls, context: StreamContext, meta: StreamMeta) -> Stream:
        """Create a stream in memory, which ends with the server."""
        seed = context.chance.getrandbits(64)
        store = MessageStore(str(meta.config["name"]), limits_of(meta.config), seed=seed)
        first_seq = int(meta.config.get("first_seq") or 0)
        if first_seq > 0:
            store.compact(first_seq)
        return cls(context, meta, store)

    @classmethod
    def in_files(
        cls, context: StreamContext, meta: StreamMeta, folder: StreamFolder, **settings: Any
    ) -> Generator[Creation | Callable[[], object], None, Stream]:
        """Create a stream in files, as durable as its mode requires; it takes no messages yet.

        It yields calls that wait for the disk: the caller runs them, in any thread, before it
        continues.
        """
        folder.is_lazy = not context.syncs or meta.config.get("persist_mode") == PersistMode.ASYNC
        creation = folder.creation(meta)
        yield creation
        settings.setdefault("seed", context.chance.getrandbits(64))
        files = folder.begin(meta, **settings)
        stream = cls(context, meta, files.table, files, folder)
        if folder.is_lazy:
            files.flush()
            stream.created(creation)
            return stream
        try:
            while (commit := files.begin_commit()) is not None:
                yield commit.run
                files.finish_commit(commit)
        except BaseException:
            files.abandon()
            raise
        return stream

    def load_ids(self, now_ns: int) -> None:
        """Load the ids of the messages of the last window, before the stream takes others."""
        for _ in self.load_some_ids(self.config.duplicate_window, now_ns):
            pass

    def load_some_ids(self, window_ns: int, now_ns: int) -> Iterator[None]:
        """Load the ids in short steps. Messages stored meanwhile must not have ids."""
        if not self.store.msgs:
            return
        self.ids.clear()
        self.ids.set_window(window_ns, self.turn.monotonic_ns)
        first = self.store.sequence_at(now_ns - window_ns + 1) if window_ns > 0 else 0
        seq = self.ingest.load_ids(first or self.store.last_seq + 1, IDS_PER_STEP)
        while seq:
            yield
            seq = self.ingest.load_ids(seq, IDS_PER_STEP)

    def load_schedules(self, now_ns: int) -> None:
        """Restore the times of schedules."""
        if self.schedules is None:
            return
        if self.files is None:
            self.schedules.recover(array("Q"), array("q"), 0, now_ns)
        else:
            self.schedules.recover(*read_schedule_times(self.files), now_ns)

    def load_times(self, now_ns: int) -> None:
        """Restore what depends on times: schedules, and messages that are ahead of the clock."""
        self.load_schedules(now_ns)
        if is_any_ahead(self.store, now_ns):
            self.look_at_stamps(now_ns)

    def activate(self) -> None:
        """Take messages on all subjects of the configuration, and answer direct gets."""
        wanted = set(self.config.subjects)
        for subject in list(self._tokens):
            if subject not in wanted:
                self.account.unsubscribe(self._tokens.pop(subject))
        for subject in wanted - set(self._tokens):
            self._tokens[subject] = self.ingest.attach(stream_queries.to_bytes(subject))
        if self.config.allow_direct:
            self.direct.activate()
        else:
            self.direct.deactivate()
        self.is_active = True

    def stand_in(self, origin: str) -> None:
        """Answer direct gets for the stream that this one is a mirror of; "": no longer."""
        if origin and self.is_active:
            self.direct.stand_in(origin)
        else:
            self.direct.step_back()

    def deactivate(self) -> None:
        """Take no more messages."""
        self.is_active = False
        self.slow_path.drop_batches()
        self.direct.step_back()
        self.direct.deactivate()
        for token in self._tokens.values():
            self.account.unsubscribe(token)
        self._tokens.clear()

    def refuse_all(self, reason: str) -> ClosedSubjects:
        """Take no more messages, and refuse them with a reason until the result is ended."""
        subjects = [] if self.config.no_ack else list(self._tokens)
        self.deactivate()
        return ClosedSubjects(self.account, self._bodies, subjects, reason)

    def meta_with(self, config: StreamConfig) -> StreamMeta:
        """The metadata for the disk if the stream has this configuration."""
        return StreamMeta(stream_config_to_dict(config, self.meta.config), self.meta.created_ns)

    def before_change(self, config: StreamConfig) -> Iterator[None]:
        """Prepare for a new configuration in steps; most need none.

        A mirror that becomes a stream of its own learns the ids of what it has copied: a publisher
        may repeat a message that the origin has taken. nats-server stores that again.
        """
        if self.config.mirror is not None and config.mirror is None:
            yield from self.load_some_ids(config.duplicate_window, self.turn.now_ns)

    def apply(self, meta: StreamMeta, config: StreamConfig) -> None:
        """Apply a configuration that is already on disk.

        Messages that its limits no longer allow are removed in steps, see `upkeep`.
        """
        self.meta = meta
        self.config = config
        self._configure()
        self.ids.set_window(config.duplicate_window, self.turn.monotonic_ns)
        if (limits := limits_of(meta.config)) != self.store.limits:
            self.store.set_limits(limits)
            self.store.begin_limits()
            self.turn.mark_dirty(self.ingest)
        if self.is_active:
            self.activate()

    def _configure(self) -> None:
        config = self.config
        self.checks.config = config
        if config.allow_msg_schedules and self.schedules is None:
            self.schedules = Schedules(self.store, self.slow_path.publish_run)
        if self.files is not None:
            self.files.keeps_schedules = config.allow_msg_schedules
        self.slow_path.configure(config, self._mapping(config.subject_transform))
        headers_only = config.republish is not None and config.republish.headers_only
        self.storing.set_republish(self._mapping(config.republish), headers_only=headers_only)
        is_plain = (
            not config.sealed
            and config.subject_transform is None
            and config.republish is None
            and config.mirror is None
            and not has_schema_rule(config.metadata)
        )
        takes_schedules = config.allow_msg_schedules and not config.allow_msg_counter
        self.ingest.scheduling = ScheduleIntake(config.subjects) if takes_schedules else None
        self.ingest.configure(
            acks=not config.no_ack,
            is_plain=is_plain and not config.allow_msg_counter,
            counts=is_plain and config.allow_msg_counter,
            takes_batches=config.allow_atomic,
            waits=self.waits_for_sync,
            writes=self.files is not None and self.sync_mode is SyncMode.INTERVAL,
            asks_interest=config.retention is RetentionPolicy.INTEREST,
            discards_new=config.discard is DiscardPolicy.NEW,
            discards_new_per_subject=config.discard_new_per_subject,
            message_bytes_max=config.max_msg_size if config.max_msg_size > 0 else -1,
        )

    def _mapping(self, given: SubjectTransform | RePublish | None) -> SubjectMapping | None:
        if given is None:
            return None
        chance = self.context.chance
        return compile_mapping(given.src or ">", given.dest, random_below=chance.randrange)

    def begin_close(self) -> Callable[[], None] | None:
        """Take no more messages and make everything durable. Waiting replies are sent.

        Returns a function that any thread may call later to make the next start quick, or None.
        """
        self.deactivate()
        finish: Callable[[], None] | None = None
        if self.files is not None:
            try:
                self.upkeep.finish()
                if self.schedules is not None:
                    self.schedules.restore_planned_times()
                finish = self.files.begin_close()
            except StoreError as error:
                self.failed(error)
                return None
            if self.files.failure is not None or self.files.is_fenced:
                # Messages that are not durable are not acknowledged.
                self.failed(self.files.failure or StoreError("closed during a transaction"))
                return finish
        self.ingest.acknowledge_through(self.store.last_seq)
        return finish

    # ---------------------------------------------------------------- questions and changes

    def state(self, consumer_count: int = 0) -> StreamState:
        """The state of the stream; `stream_queries` has the details that may be many."""
        return stream_queries.stream_state(self.store, consumer_count)

    def get(self, request: MsgGetRequest) -> StoredMessage:
        """Get the message that a request names, to be shown once it is visible; ApiError."""
        return stream_queries.get_message(self.store, request, self.ingest)

    def delete_message(self, seq: int, *, erase: bool = True) -> None:
        """Remove one message; ApiError if that is not allowed or there is no such message."""
        if self.config.sealed:
            raise errors.STREAM_SEALED()
        if self.config.deny_delete:
            raise errors.STREAM_MSG_DELETE_FAILED(err="message delete not permitted")
        try:
            found = self.store.remove(seq, erase=erase)
        except StoreError as error:
            raise errors.STREAM_MSG_DELETE_FAILED(err=str(error)) from None
        if not found:
            raise stream_queries.not_there(self.store, seq, in_files=self.folder is not None)
        self.turn.mark_dirty(self.ingest)

    def purge_steps(self, pattern: str = "", *, seq: int = 0, keep: int = 0) -> Iterator[int]:
        """Remove messages, see `MessageStore.purge`, in steps that take little time.

        Each step gives the number of removed messages; messages stored meanwhile stay. ApiError if
        purges are not allowed.
        """
        if self.config.sealed:
            raise errors.STREAM_SEALED()
        if self.config.deny_purge:
            raise errors.STREAM_PURGE_FAILED(err="stream purge not permitted")
        if seq and keep:
            raise errors.BAD_REQUEST()
        if pattern and not stream_queries.can_match(stream_queries.to_bytes(pattern)):
            return
        chosen = self.store.filter((stream_queries.to_bytes(pattern),) if pattern else ())
        steps = self.store.purge_steps(
            chosen, below=seq, keep=keep, step=self.upkeep.step_size, work=PURGE_WORK_NS
        )
        try:
            while (purged := self.upkeep.purge_step(steps, chosen)) is not None:
                yield purged
        except StoreError as error:
            raise errors.STREAM_PURGE_FAILED(err=str(error)) from None

    # ---------------------------------------------------------------- turns

    @property
    def visible_seq(self) -> int:
        """The last sequence that consumers and readers may see."""
        return self.ingest.visible()

    @property
    def sync_mode(self) -> SyncMode:
        """The durability that an acknowledgement of a stream in files promises."""
        if self.config.persist_mode is PersistMode.ASYNC:
            return SyncMode.ASYNC
        return SyncMode.ALWAYS if self.context.syncs else SyncMode.INTERVAL

    @property
    def waits_for_sync(self) -> bool:
        """Whether an acknowledgement means that the message is synced."""
        return self.files is not None and self.sync_mode is SyncMode.ALWAYS

    def created(self, creation: Creation) -> None:
        """Called when the stream or one of its consumers was created; if the creation was not
        synced yet, the next commit does that.
        """
        if creation.is_lazy:
            assert self.folder is not None
            self.folder.unsettled.add(creation)
            self.turn.mark_dirty(self.ingest)

    def failed(self, error: StoreError) -> None:
        """Send all waiters the error of a failed write or sync; reading continues.

        Their messages are in memory, and go to the disk when that has room again.
        """
        if self._reported is not error:
            self._reported = error
            self.context.log.error(f"JetStream stream '{self.name}' takes no messages: {error}")
        self.refuse_waiting(errors.STREAM_STORE_FAILED(err=or_stored(error)))

    def freeze(self, reason: StoreError) -> None:
        """Take no changes from now on; since that is not a failure, it is not logged."""
        assert self.files is not None
        self._reported = reason
        self.files.fail(reason, resumable=False)

    def refuse_waiting(self, error: errors.ApiError) -> None:
        """Answer all waiting publishers with this error.

        Answers about messages of other streams that wait here are sent as they are.
        """
        body = self._bodies.refused(error)
        self.ingest.acknowledge_through(self.ingest.acknowledged_seq, body)

    # ---------------------------------------------------------------- time

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do (monotonic); 0: never."""
        if self.upkeep.has_work:
            return max(self.turn.monotonic_ns, 1)
        times = (
            self.direct.next_deadline_ns,
            self.slow_path.staging.next_deadline_ns,
            self.slow_path.fast_batches.next_deadline_ns,
        )
        soonest_ns = min(filter(None, times), default=0)
        if self.ids.count:
            # Late is soon enough for ids: their time is looked at whenever one is found.
            id_ns = max(self.ids.next_expiry_ns + IDS_LATE_NS, 1)
            soonest_ns = min(soonest_ns, id_ns) if soonest_ns else id_ns
        steady_ns = self.turn.steady_ns()
        age_ns = self.upkeep.next_expiry_ns(steady_ns)
        if self.schedules is not None:
            fire_ns = self.schedules.next_deadline_ns(steady_ns)
            if fire_ns is not None and not self.config.sealed and not self.store.read_only:
                age_ns = fire_ns if age_ns is None else min(age_ns, fire_ns)
        if age_ns is None:
            return soonest_ns
        due_ns = self.turn.monotonic_ns + max(age_ns - steady_ns, 0)
        return min(due_ns, soonest_ns) if soonest_ns else due_ns

    def clock_went_back(self, distance_ns: int) -> None:
        """Log that the next message gets a time this much before the last one."""
        self.context.log.warn(
            f"JetStream stream {self.place}: the clock is {format_duration(distance_ns)} behind the"
            " last message; times of messages follow the clock from here on"
        )

    def clock_moved(self, *, ahead: bool) -> None:
        """Adapt to a jump of the machine's clock that is trusted."""
        now_ns = self.turn.steady_ns()
        if not ahead and self.schedules is not None:
            self.schedules.clock_went_back()
        if self.store.ahead or is_any_ahead(self.store, now_ns):
            self.look_at_stamps(now_ns)
        self.ingest.deadline_changed()

    def look_at_stamps(self, now_ns: int) -> None:
        """Have messages that are ahead of the clock expire, and their schedules run, as if they
        were stored now.
        """
        note_ahead(self.store, now_ns)
        self.upkeep.correct_timers()
        if self.schedules is not None:
            self.schedules.clock_went_back()

    def tick(self) -> None:
        """Remove what is too old, in short steps."""
        now_ns = self.turn.steady_ns()
        self.ids.expire(self.turn.monotonic_ns, IDS_EXPIRED_PER_STEP)
        if 0 < self.direct.next_deadline_ns <= self.turn.monotonic_ns:
            self.direct.tick()
        self.slow_path.staging.tick(self.turn.monotonic_ns)
        self.slow_path.fast_batches.tick(self.turn.monotonic_ns)
        if self.schedules is not None and not self.config.sealed and not self.store.read_only:
            self.schedules.tick(now_ns)
        self.upkeep.step(now_ns)
