"""`tradewind sub`: shows messages of subjects or streams as they arrive.

Owns the flags that select messages; the display is in `message_display.py`. A stream is read in
order by a temporary consumer, unless `--durable` names a durable one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from tradewind.cli.frame.command_loop import Troubles, connect_async, run_until_stopped, stamp
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.message_display import MessageStyle, metadata_of
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.subjects import is_subset

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg
    from tradewind.client.core.subscription import Subscription
    from tradewind.client.jetstream import JetStream
    from tradewind.client.streams.consumers import Consumer
    from tradewind.client.streams.delivered import DeliveredMessages

app = CommandApp("Subscribe to subjects and show messages")

TAKE_MAX: Final = 256
# How long a fetch of --count messages waits for the last of them, unless --wait ends it.
FETCH_SECONDS: Final = 3600.0
_REPORT_SECONDS: Final = 1.0
# By flag: whether it was given, what it means for a consumer, and for people.
StartChoices = dict[str, tuple[object, dict[str, Any], str]]
REPLIES_REMEMBERED_MAX: Final = 10_000
Item = TypeVar("Item")


SubjectsArgument = Annotated[
    list[str] | None, Argument(help="Subjects; wildcards are allowed", show_default=False)
]
QueueFlag = Annotated[str, Option("--queue", help="Queue group")]
DurableFlag = Annotated[str, Option("--durable", help="Use this durable consumer")]
RawFlag = Annotated[bool, Option("--raw", "-r", help="Print only bodies")]
AckFlag = Annotated[bool, Option("--ack/--no-ack", help="Acknowledge messages of streams")]
MatchRepliesFlag = Annotated[
    bool, Option("--match-replies", help="Match requests with their replies")
]
InboxFlag = Annotated[bool, Option("--inbox", "-i", help="Listen on a new inbox")]
CountFlag = Annotated[int, Option("--count", min=0, help="Stop after this many messages")]
DumpFlag = Annotated[
    str, Option("--dump", help="Save each message as a file in this folder; - for standard output")
]
HeadersOnlyFlag = Annotated[bool, Option("--headers-only", help="Show headers only")]
SubjectsOnlyFlag = Annotated[bool, Option("--subjects-only", help="Show only subjects")]
StartSequenceFlag = Annotated[
    int, Option("--start-sequence", min=0, help="Start at this stream sequence")
]
DeliverAllFlag = Annotated[bool, Option("--all", help="Deliver all messages of the stream")]
DeliverNewFlag = Annotated[bool, Option("--new", help="Deliver only new messages")]
DeliverLastFlag = Annotated[bool, Option("--last", help="Start with the last message")]
SinceFlag = Annotated[
    str, Option("--since", help="Deliver messages stored since this time", metavar="DURATION")
]
LastPerSubjectFlag = Annotated[
    bool, Option("--last-per-subject", help="Start with the last message of each subject")
]
StreamFlag = Annotated[str, Option("--stream", help="Read from this stream")]
IgnoreSubjectFlag = Annotated[
    list[str] | None,
    Option("--ignore-subject", "-I", help="Ignore these subjects", show_default=False),
]
WaitFlag = Annotated[
    str, Option("--wait", help="Stop when nothing arrives for this long", metavar="DURATION")
]
ReportSubjectsFlag = Annotated[
    bool, Option("--report-subjects", help="Show a table of subjects instead of messages")
]
ReportTopFlag = Annotated[int, Option("--report-top", min=1, help="Rows of the table")]
TimestampFlag = Annotated[bool, Option("--timestamp", "-t", help="Show timestamps")]
DeltaTimeFlag = Annotated[bool, Option("--delta-time", "-d", help="Show the time since the start")]
JsonLinesFlag = Annotated[bool, Option("--json", "-j", help="Print a line of JSON per message")]
TranslateFlag = Annotated[
    str, Option("--translate", help="Pipe bodies through a command", metavar="COMMAND")
]
DecodeFlag = Annotated[
    bool, Option("--decode", help="Show bodies as JSON by the schemas of their subjects")
]


@dataclass(slots=True, kw_only=True)
class SubscribePlan:
    """The messages to subscribe to, and how they are handled."""

    subjects: list[str]
    queue: str = ""
    durable: str = ""
    stream: str = ""
    start: dict[str, Any] = field(default_factory=dict)
    start_text: str = ""
    is_stream: bool = False
    count: int = 0
    ack: bool = False
    inbox: bool = False
    match_replies: bool = False
    wait_seconds: float = 0.0
    ignored: list[str] = field(default_factory=list)
    on_ready: Callable[[list[str]], None] | None = None  # instead of a line about it


@app.command()
def subscribe(
    subjects: SubjectsArgument = None,
    queue: QueueFlag = "",
    durable: DurableFlag = "",
    raw: RawFlag = False,
    ack: AckFlag = False,
    match_replies: MatchRepliesFlag = False,
    inbox: InboxFlag = False,
    count: CountFlag = 0,
    dump: DumpFlag = "",
    headers_only: HeadersOnlyFlag = False,
    subjects_only: SubjectsOnlyFlag = False,
    start_sequence: StartSequenceFlag = 0,
    deliver_all: DeliverAllFlag = False,
    deliver_new: DeliverNewFlag = False,
    deliver_last: DeliverLastFlag = False,
    since: SinceFlag = "",
    last_per_subject: LastPerSubjectFlag = False,
    stream: StreamFlag = "",
    ignore_subject: IgnoreSubjectFlag = None,
    wait: WaitFlag = "",
    report_subjects: ReportSubjectsFlag = False,
    report_top: ReportTopFlag = 10,
    timestamp: TimestampFlag = False,
    delta_time: DeltaTimeFlag = False,
    translate: TranslateFlag = "",
    json: JsonLinesFlag = False,
    decode: DecodeFlag = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C.

    With --stream, --all, --new, --last, --last-per-subject, --since, --start-sequence or --durable,
    the messages are read from a stream.
    """
    start_choices: StartChoices = {
        "--start-sequence": (start_sequence, {"start_sequence": start_sequence}, "sequence"),
        "--last": (deliver_last, {"deliver_policy": "last"}, "the last message received"),
        "--all": (deliver_all, {"deliver_policy": "all"}, "the first message received"),
        "--new": (deliver_new, {"deliver_policy": "new"}, "any new message received"),
        "--last-per-subject": (
            last_per_subject,
            {"deliver_policy": "last_per_subject"},
            "the last message of each subject",
        ),
        "--since": (since, since_start(since), f"messages since {since}"),
    }
    wanted = _wanted(start_choices, subjects or [], queue=queue, durable=durable, stream=stream)
    wanted.count, wanted.ack, wanted.inbox = count, ack, inbox
    wanted.match_replies = match_replies
    wanted.ignored = ignore_subject or []
    wanted.wait_seconds = parse_duration_ns(wait, "--wait") / 1e9
    _check(wanted, dump=dump)
    look = MessageStyle(
        raw=raw,
        json=json,
        dump=dump,
        headers_only=headers_only,
        subjects_only=subjects_only,
        timestamp=timestamp,
        delta=delta_time,
        translate=translate,
        is_stream=wanted.is_stream,
        decodes=decode,
    )
    if report_subjects:
        run_until_stopped(_report(wanted, report_top))
    else:
        run_until_stopped(_show(wanted, look))


def since_start(text: str) -> dict[str, Any]:
    """Where an ordered consumer begins that reads what was stored since `text`."""
    if not text:
        return {}
    passed = timedelta(microseconds=parse_duration_ns(text, "--since") // 1000)
    return {"start_time": datetime.now(UTC) - passed}


def _wanted(
    start_choices: StartChoices,
    subjects: list[str],
    *,
    queue: str,
    durable: str,
    stream: str,
) -> SubscribePlan:
    given = [flag for flag, (value, _, _) in start_choices.items() if value]
    if len(given) > 1:
        raise CommandError(f"{given[0]} and {given[1]}: use only one", exit_code=EXIT_USAGE)
    wanted = SubscribePlan(subjects=subjects, queue=queue, durable=durable, stream=stream)
    wanted.is_stream = bool(given or durable or stream)
    if given:
        value, wanted.start, text = start_choices[given[0]]
        wanted.start_text = f"{text} {value}" if text == "sequence" else text
    return wanted


def _check(wanted: SubscribePlan, *, dump: str) -> None:
    if wanted.inbox and wanted.is_stream:
        raise CommandError("--inbox cannot be combined with a stream: streams do not store inboxes")
    if wanted.queue and wanted.is_stream:
        raise CommandError(
            "--queue: members of a group cannot share a stream in this way",
            "let them share a consumer:  tradewind sub --stream STREAM --durable CONSUMER",
        )
    if not wanted.subjects and not wanted.inbox and not wanted.stream:
        raise CommandError("specify a subject, --stream or --inbox", exit_code=EXIT_USAGE)
    if dump and dump != "-" and not Path(dump).is_dir():
        raise CommandError(f"--dump: {dump} is not a folder")


# ------------------------------------------------------------------ reading


async def read_messages(connection: Connection, wanted: SubscribePlan) -> AsyncGenerator[Msg, None]:
    """The wanted messages, from wherever they come."""
    if wanted.is_stream:
        source = _stream_messages(connection, wanted)
    else:
        source = _core_messages(connection, wanted)
    shown = 0
    async with aclosing(source):
        async for message in source:
            if any(is_subset(message.subject, pattern) for pattern in wanted.ignored):
                _settle(wanted, message)
                continue
            shown += 1
            yield message
            if shown == wanted.count:
                return


def _settle(wanted: SubscribePlan, message: Msg) -> None:
    """Acknowledge a message that was shown, if that is wanted."""
    if wanted.durable or (wanted.ack and metadata_of(message) is not None):
        message.ack()


async def _core_messages(
    connection: Connection, wanted: SubscribePlan
) -> AsyncGenerator[Msg, None]:
    subjects = wanted.subjects or [connection.new_inbox()]
    arrived: asyncio.Queue[Msg | None] = asyncio.Queue(TAKE_MAX)

    async def forward(subscription: Subscription) -> None:
        async for message in subscription:
            await arrived.put(message)
        await arrived.put(None)

    subscriptions = [
        await connection.subscribe(subject, queue=wanted.queue) for subject in subjects
    ]
    await connection.flush()
    extra = " with acknowledgement of JetStream messages" if wanted.ack else ""
    if wanted.on_ready is None:
        stamp(f"Subscribing on {', '.join(subjects)}{extra}")
    else:
        wanted.on_ready(subjects)
    tasks = [asyncio.create_task(forward(subscription)) for subscription in subscriptions]
    try:
        while (message := await _next(arrived, tasks, wanted.wait_seconds)) is not None:
            yield message
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next(
    arrived: asyncio.Queue[Msg | None], tasks: list[asyncio.Task[None]], wait_seconds: float
) -> Msg | None:
    """The next message; None if none comes in time or a subscription has ended."""
    getter = asyncio.create_task(arrived.get())
    try:
        done, _ = await asyncio.wait(
            [getter, *tasks],
            timeout=wait_seconds or None,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in done - {getter}:
            task.result()
        return getter.result() if getter in done else None
    finally:
        getter.cancel()


async def _stream_messages(
    connection: Connection, wanted: SubscribePlan
) -> AsyncGenerator[Msg, None]:
    js = connection.jetstream()
    stream = wanted.stream or await js.manager.streams.find(wanted.subjects[0])
    if wanted.durable:
        consumer = await _durable(js, stream, wanted)
        if wanted.count:
            # Not more than are shown, so that others get the rest at once.
            messages: DeliveredMessages = await consumer.fetch(wanted.count, expires=FETCH_SECONDS)
        else:
            messages = await consumer.consume(TAKE_MAX)
    else:
        start = wanted.start or {"deliver_policy": "all" if wanted.stream else "new"}
        ordered = js.consumers.ordered(stream, filter_subjects=wanted.subjects, **start)
        messages = await ordered.consume()
        stamp(
            f"Subscribing to JetStream Stream {stream} holding messages with subject "
            f"{', '.join(wanted.subjects) or '>'} starting with "
            f"{wanted.start_text or 'the first message received'}"
        )
    async with messages:
        while True:
            try:
                async with asyncio.timeout(wanted.wait_seconds or None):
                    some = await messages.take_some(1)
            except TimeoutError:
                return
            if not some:
                return
            yield some[0]


async def _durable(js: JetStream, stream: str, wanted: SubscribePlan) -> Consumer:
    """A consumer that remembers what was read; it is made if it is not there."""
    from tradewind.client.api_errors import ConsumerNotFoundError

    try:
        consumer = await js.consumers.get(stream, wanted.durable)
        stamp(f"Subscribing to JetStream Stream {stream} using the consumer {wanted.durable}")
    except ConsumerNotFoundError:
        filters = wanted.subjects
        await js.manager.consumers.add(
            stream,
            durable_name=wanted.durable,
            ack_policy="explicit",
            filter_subjects=filters if len(filters) > 1 else [],
            filter_subject=filters[0] if len(filters) == 1 else "",
            **_start_settings(wanted.start),
        )
        consumer = await js.consumers.get(stream, wanted.durable)
        stamp(f"Subscribing to JetStream Stream {stream} using the new consumer {wanted.durable}")
    return consumer


def _start_settings(start: dict[str, Any]) -> dict[str, Any]:
    """Where a consumer begins, in the names of its configuration."""
    if "start_sequence" in start:
        return {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start["start_sequence"],
        }
    if "start_time" in start:
        return {"deliver_policy": "by_start_time", "opt_start_time": start["start_time"]}
    return start


# ------------------------------------------------------------------ showing


async def _show(wanted: SubscribePlan, look: MessageStyle) -> None:
    troubles = Troubles()
    async with await connect_async(on_event=troubles.on_event) as connection:
        matcher = await _matcher(connection, look) if wanted.match_replies else None
        if look.decodes:
            look.schemas = (await connection.jetstream().schemas.follow()).table
        number = 0
        async with aclosing(read_messages(connection, wanted)) as messages:
            async for message in messages:
                number += 1
                if matcher is not None and message.reply:
                    matcher(number, message)
                else:
                    look.show(number, message)
                _settle(wanted, message)
        await connection.flush()
        troubles.check()


async def _matcher(connection: Connection, look: MessageStyle) -> Callable[[int, Msg], None]:
    """Shows a message together with its answer, when that comes; it may be here before."""
    asked: dict[str, tuple[int, Msg]] = {}
    early: dict[str, Msg] = {}

    def show(number: int, message: Msg, reply: Msg) -> None:
        look.show(number, message)
        look.show(number, reply, "Matched reply")

    def on_reply(reply: Msg) -> None:
        found = asked.pop(reply.subject, None)
        if found is None:
            _remember(early, reply.subject, reply)
        else:
            show(*found, reply)

    def on_request(number: int, message: Msg) -> None:
        reply = early.pop(message.reply, None)
        if reply is None:
            _remember(asked, message.reply, (number, message))
        else:
            show(number, message, reply)

    await connection.subscribe(f"{connection.options.inbox_prefix}.>", callback=on_reply)
    return on_request


def _remember(known: dict[str, Item], subject: str, item: Item) -> None:
    """Keep something of a subject; the oldest goes if it becomes too much."""
    if len(known) >= REPLIES_REMEMBERED_MAX:
        known.pop(next(iter(known)))
    known[subject] = item


async def _report(wanted: SubscribePlan, rows: int) -> None:
    """Count messages by subject and show the most frequent ones, live on a terminal."""
    from tradewind.cli.frame.live import LiveScreen

    counts: dict[str, list[int]] = {}

    def lines() -> list[str]:
        from tradewind.cli.frame.output import Table
        from tradewind.cli.frame.text_formats import size_text

        table = Table(f"Top {rows} subjects", "Subject", "Messages", "Bytes")
        ordered = sorted(counts.items(), key=lambda item: (-item[1][0], item[0]))
        for subject, (count, size) in ordered[:rows]:
            table.row(subject, count, size_text(size))
        return table.lines()

    async with await connect_async() as connection:
        with LiveScreen() as screen:
            async with aclosing(read_messages(connection, wanted)) as messages:
                async for message in messages:
                    entry = counts.setdefault(message.subject, [0, 0])
                    entry[0] += 1
                    entry[1] += len(message.data)
                    _settle(wanted, message)
                    screen.show_sometimes(lines, _REPORT_SECONDS)
            screen.show(lines())
