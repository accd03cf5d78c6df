"""Streams that are created by their first publish, according to the templates of an account.

Owns the templates, their file (`tradewind.templates` in the folder of the account), the messages
that wait for their stream, and the sweep that removes unused streams. A stream is created as by a
request, in the order of the requests of its account; the messages that triggered it are published
again, in their order, when it exists. A publish that has a receiver never gets here.
"""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api import errors
from tradewind.api.base import encode
from tradewind.api.errors import ApiError
from tradewind.api.stream_types import ErrorDetail
from tradewind.api.template_types import (
    TEMPLATE_KEY,
    TEMPLATES_MAX,
    StreamTemplate,
    check_apart,
    checked_template,
    stream_for,
    takes,
)
from tradewind.broker.unheard import add_taker, remove_taker
from tradewind.errors import StoreError
from tradewind.jetstream import stream_catalog
from tradewind.store.format.layout import TEMPLATES_FILE
from tradewind.store.table.stamps_ahead import counted_time

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig
    from tradewind.broker.session import Session
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.jetstream.lanes import Steps

# Messages of an account that wait for streams which are being made.
WAITING_MAX: Final = 4096
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
# A template whose quota is used up is not counted again for so long.
FULL_NS: Final = 1_000_000_000
SWEEP_NS_MIN: Final = 1_000_000_000
SWEEP_NS_MAX: Final = 60_000_000_000
Waiting = tuple[bytes, bytes, bytes, bytes]  # subject, reply, header, payload


class Templates:
    """The templates of one account."""

    def __init__(self, engine: JetStreamEngine, tenant: JetStreamAccount) -> None:
        self._engine = engine
        self.tenant = tenant
        self.all: dict[str, StreamTemplate] = {}
        self._waiting: dict[str, list[Waiting]] = {}  # by stream
        self._makers: dict[str, Steps[None]] = {}  # ... who makes it
        self._waiting_count = self._waiting_bytes = 0
        self._full: dict[str, int] = {}  # template -> until when it is not counted again
        self._is_warned = False

    # ---------------------------------------------------------------- the file

    @property
    def _folder(self) -> str:
        assert self._engine.root is not None
        return f"{self._engine.root.folder}/{self.tenant.name}"

    def load(self) -> None:
        """Read the file; StoreError or ValueError if it cannot be read."""
        assert self._engine.root is not None
        data = self._engine.root.disk.read_file(f"{self._folder}/{TEMPLATES_FILE}")
        found = msgspec.json.decode(data, type=list[StreamTemplate])
        self.all = {template.name: template for template in found}
        self._engine.timers.set(self, self.next_deadline_ns)

    def _save(self, templates: dict[str, StreamTemplate]) -> Steps[None]:
        assert self._engine.root is not None
        disk, folder = self._engine.root.disk, self._folder
        data = encode(list(templates.values()))

        def write() -> None:
            disk.make_directory(folder, sync=True)
            disk.write_file_atomically(f"{folder}/{TEMPLATES_FILE}", data)

        try:
            yield write
        except StoreError as error:
            raise errors.STREAM_GENERAL(err=str(error)) from None
        self.all = templates
        self._full.clear()
        self._engine.timers.set(self, self.next_deadline_ns)

    def put(self, wanted: StreamTemplate, *, dry_run: bool) -> Steps[None]:
        """Create or change a template; existing streams stay as they are."""
        template = checked_template(wanted)
        others = [each for each in self.all.values() if each.name != template.name]
        check_apart(template, others)
        if len(others) >= TEMPLATES_MAX:
            raise errors.STREAM_INVALID_CONFIG(err=f"at most {TEMPLATES_MAX} templates")
        if not dry_run:
            yield from self._save({**self.all, template.name: template})

    def delete(self, name: str) -> Steps[None]:
        """Delete a template; streams that it has created stay, and are no longer removed
        automatically.
        """
        if name not in self.all:
            raise errors.STREAM_INVALID_CONFIG(err=f"template does not exist: {name[:64]!r}")
        yield from self._save({key: each for key, each in self.all.items() if key != name})

    # ---------------------------------------------------------------- first publishes

    def find(self, subject: str) -> StreamTemplate | None:
        """The template of a subject."""
        return next((each for each in self.all.values() if takes(each, subject)), None)

    def streams_of(self, name: str) -> int:
        """The number of streams of a template, or of all ("") that exist or are being created."""
        configs = self.tenant.configs.values()
        if not name:
            return sum(TEMPLATE_KEY in config.metadata for config in configs)
        return sum(config.metadata.get(TEMPLATE_KEY) == name for config in configs)

    def problem(self, template: StreamTemplate, config: StreamConfig) -> ApiError | None:
        """The reason why a stream cannot be created now."""
        if config.name in self.tenant.configs:
            return errors.STREAM_INVALID_CONFIG(
                err=f"template {template.name!r}: stream {config.name!r} exists, but does not"
                " store this subject"
            )
        if (most := self.tenant.template_streams_max) >= 0 and self._is_full("", most):
            return errors.STREAM_INVALID_CONFIG(
                err=f"template {template.name!r}: the templates of this account have reached"
                f" their limit of {most} streams (max_template_streams)"
            )
        if self._is_full(template.name, template.max_streams):
            return errors.STREAM_INVALID_CONFIG(
                err=f"template {template.name!r}: it has reached its limit of"
                f" {template.max_streams} streams (max_streams)"
            )
        return None

    def _is_full(self, name: str, most: int) -> bool:
        """Whether a template, or all of them ("") have created this many streams. Counting takes
        time, so a positive result is cached for a moment.
        """
        now_ns = self._engine.turn.monotonic_ns
        if self._full.get(name, 0) > now_ns:
            return True
        if self.streams_of(name) < most:
            return False
        self._full[name] = now_ns + FULL_NS
        self._warn(name, most)
        return True

    def _warn(self, name: str, most: int) -> None:
        if not self._is_warned:
            self._is_warned = True
            who = f"template '{self.tenant.name} > {name}' has reached its limit of {most} streams"
            if not name:
                who = (
                    f"templates of account {self.tenant.name!r} have reached their "
                    f"limit of {most} streams"
                )
            self._engine.log.warn(f"JetStream {who}")

    def take(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Take a message that had no receiver, after its delivery has ended."""
        account = self.tenant.account
        text = subject.decode("utf-8", "surrogateescape")
        reply_text = reply.decode("utf-8", "surrogateescape")
        if account.publish(text, payload, reply_text, header):
            return  # the name was taken meanwhile
        template = self.find(text)
        if template is None:
            return
        try:
            config = stream_for(template, text)
        except ApiError as error:
            self._refuse(reply, "", error)
            return
        message = (subject, reply, header, payload)
        size = sum(map(len, message))
        waiting = self._waiting.get(config.name)
        if waiting is not None and getgeneratorstate(self._makers[config.name]) == GEN_CLOSED:
            # Too many requests waited, and all were dropped: this was one of them.
            self._end(config.name, errors.STREAM_TOO_MANY_REQUESTS())
            waiting = None
        problem = None if waiting is not None else self.problem(template, config)
        if problem is None and (
            self._waiting_count >= WAITING_MAX or self._waiting_bytes + size > WAITING_BYTES_MAX
        ):
            problem = errors.STREAM_TOO_MANY_REQUESTS()
        if problem is not None:
            self._refuse(reply, config.name, problem)
            return
        self._waiting_count += 1
        self._waiting_bytes += size
        if waiting is not None:
            waiting.append(message)
            return
        self._waiting[config.name] = [message]
        steps = self._makers[config.name] = self._make(template, config)
        self.tenant.lane.add(steps, "stream", "template", config.name)

    def _make(self, template: StreamTemplate, config: StreamConfig) -> Steps[None]:
        """Create the stream of a first publish, then publish all messages that were waiting for
        it.
        """
        problem: ApiError | None = None
        try:
            yield from stream_catalog.create_stream(
                self._engine, self.tenant, config, pedantic=False
            )
        except ApiError as error:
            problem = error
        if problem is None:
            place = f"'{self.tenant.name} > {config.name}'"
            self._engine.log.notice(f"JetStream template {template.name!r} created stream {place}")
        self._end(config.name, problem)

    def _end(self, stream: str, problem: ApiError | None) -> None:
        """Publish or refuse the waiting messages when a stream was created or could not be."""
        del self._makers[stream]
        waiting = self._waiting.pop(stream)
        self._waiting_count -= len(waiting)
        self._waiting_bytes -= sum(sum(map(len, message)) for message in waiting)
        for subject, reply, header, payload in waiting:
            if problem is not None:
                self._refuse(reply, stream, problem)
                continue
            self.tenant.account.publish(
                subject.decode("utf-8", "surrogateescape"),
                payload,
                reply.decode("utf-8", "surrogateescape"),
                header,
            )

    def _refuse(self, reply: bytes, stream: str, error: ApiError) -> None:
        if not reply:
            return
        detail = ErrorDetail(
            code=error.code, err_code=error.err_code, description=error.description
        )
        body = b'{"error":%s,"stream":%s,"seq":0}' % (encode(detail), encode(stream))
        self.tenant.account.publish(reply.decode("utf-8", "surrogateescape"), body)

    # ---------------------------------------------------------------- unused streams

    @property
    def next_deadline_ns(self) -> int:
        """When to look for unused streams; 0: never."""
        idles = [each.idle for each in self.all.values() if each.idle]
        if not idles:
            return 0
        interval_ns = min(max(min(idles) // 4, SWEEP_NS_MIN), SWEEP_NS_MAX)
        return self._engine.turn.monotonic_ns + interval_ns

    def tick(self) -> None:
        """Delete streams without consumers to which nothing was published for the template's idle
        time.
        """
        self._is_warned = False
        for hosted in list(self.tenant.streams.values()):
            template = self.all.get(hosted.config.metadata.get(TEMPLATE_KEY, ""))
            if template is not None and self._is_idle(hosted, template):
                steps = self._remove(hosted, template)
                self.tenant.lane.add(steps, "", "idle stream", hosted.name)

    def _is_idle(self, hosted: HostedStream, template: StreamTemplate) -> bool:
        if not template.idle or hosted.shown_count or hosted.consumer_problems:
            return False
        store, now_ns = hosted.stream.store, self._engine.turn.steady_ns()
        last_ns = max(store.last_timestamp, hosted.stream.created_ns)
        return now_ns - counted_time(store, store.last_seq, last_ns, now_ns) >= template.idle

    def _remove(self, hosted: HostedStream, template: StreamTemplate) -> Steps[None]:
        if self.tenant.streams.get(hosted.name) is not hosted:
            return
        if not self._is_idle(hosted, template):
            return
        name = f"'{self.tenant.name} > {hosted.name}'"
        try:
            yield from stream_catalog.delete_stream(self._engine, hosted)
        except ApiError as error:
            self._engine.log.error(f"JetStream cannot remove idle stream {name}: {error}")
            return
        self._full.pop(template.name, None)
        self._engine.log.notice(f"JetStream template {template.name!r} removed idle stream {name}")


class TemplateRegistry:
    """The templates of all accounts; takes published messages that have no receiver."""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        self._accounts: dict[str, Templates] = {}

    def of(self, tenant: JetStreamAccount) -> Templates:
        """The templates of an account."""
        found = self._accounts.get(tenant.name)
        if found is None or found.tenant is not tenant:
            found = self._accounts[tenant.name] = Templates(self._engine, tenant)
        return found

    def listen(self) -> None:
        """Take messages without a receiver if there is any template; otherwise publishes cost
        nothing extra.
        """
        if any(templates.all for templates in self._accounts.values()):
            add_taker(self._engine.broker, self._offered)
        else:
            remove_taker(self._engine.broker)

    def close(self) -> None:
        """Stop taking messages."""
        remove_taker(self._engine.broker)

    def _offered(
        self, session: Session, subject: bytes, reply: bytes, header: bytes, payload: bytes
    ) -> bool:
        """Whether a template takes a message; called in the middle of a delivery."""
        templates = self._accounts.get(session.account.name)
        if templates is None or not templates.all:
            return False
        if self._engine.accounts.get(session.account.name) is not templates.tenant:
            return False  # the account no longer has JetStream
        if templates.find(subject.decode("utf-8", "surrogateescape")) is None:
            return False
        self._engine.turn.defer(templates.take, subject, reply, header, payload)
        return True


def load_templates(engine: JetStreamEngine, tenant: JetStreamAccount) -> None:
    """Load the templates of an account that has any; called when a server starts."""
    registry = engine.template_registry()
    templates = registry.of(tenant)
    try:
        templates.load()
    except (StoreError, ValueError) as error:
        engine.log.error(f"JetStream cannot read the templates of {tenant.name!r}: {error}")
        return
    registry.listen()
