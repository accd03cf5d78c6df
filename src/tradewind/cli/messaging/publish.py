"""`tradewind pub` and `tradewind request`: send messages, and wait for replies.

Owns what is sent: the body from an argument or standard input, templates, number, interval, and
whether a stream must acknowledge it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.command_loop import Troubles, connect_async, run_async, stamp
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.message_templates import Moment, Template, now
from tradewind.cli.frame.message_text import (
    INPUT_BYTES_MAX,
    HeaderTemplates,
    has_input,
    read_input,
    write_body,
)
from tradewind.cli.frame.output import print_json_line
from tradewind.cli.frame.progress_bar import ProgressBar
from tradewind.cli.frame.text_formats import count_text, parse_duration_ns
from tradewind.durations import format_duration

if TYPE_CHECKING:
    from tradewind.api.responses import PubAck
    from tradewind.client.connection import Connection
    from tradewind.client.core.headers import Headers
    from tradewind.client.jetstream import JetStream

pub_app = CommandApp("Publish messages")
request_app = CommandApp("Send requests and show the replies")

# Up to this many messages get a line each; more are shown by a progress bar and a total.
LINES_MAX: Final = 20
FLUSH_EVERY: Final = 4096
_ON_EOF: Final = "eof"
_ON_NEWLINE: Final = "newline"

SubjectArgument = Annotated[str, Argument(help="Subject to publish to")]
BodyArgument = Annotated[
    str | None, Argument(help="Body; read from standard input if omitted", show_default=False)
]
HeaderFlag = Annotated[
    list[str] | None, Option("--header", "-H", help="A header, NAME:VALUE", show_default=False)
]
CountFlag = Annotated[int, Option("--count", min=-1, help="Number of messages; -1 for unlimited")]
SleepFlag = Annotated[str, Option("--sleep", help="Pause between messages", metavar="DURATION")]
StdinFlag = Annotated[bool, Option("--force-stdin", help="Read the body from standard input")]
SendOnFlag = Annotated[
    str,
    Option(
        "--send-on",
        help="Send the input as a whole at its end, or line by line",
        click_type=OneOf(_ON_EOF, _ON_NEWLINE),
    ),
]
TemplatesFlag = Annotated[
    bool, Option("--templates/--no-templates", help="Fill in {{Count}} and other functions")
]

ReplyFlag = Annotated[str, Option("--reply", help="Reply subject", metavar="SUBJECT")]
JetstreamFlag = Annotated[
    bool, Option("--jetstream", "-J", help="Wait for stream acknowledgements")
]
QuietFlag = Annotated[bool, Option("--quiet", "-q", help="Do not print what is sent")]
AtomicFlag = Annotated[bool, Option("--atomic", help="Publish as one atomic batch")]
ScheduleAtFlag = Annotated[
    str, Option("--schedule-at", help="Schedule for this time", metavar="TIME")
]
ScheduleAfterFlag = Annotated[
    str, Option("--schedule-after", help="Schedule after this delay", metavar="DURATION")
]
ScheduleEveryFlag = Annotated[
    str, Option("--schedule-every", help="Schedule repeatedly at this interval", metavar="DURATION")
]
ScheduleCronFlag = Annotated[
    str, Option("--schedule-cron", help="Schedule by a cron expression", metavar="CRON")
]
ScheduleDestFlag = Annotated[
    str, Option("--schedule-dest", help="Subject of the scheduled message", metavar="SUBJECT")
]
ScheduleSourceFlag = Annotated[
    str,
    Option(
        "--schedule-source", help="Subject whose last message provides the body", metavar="SUBJECT"
    ),
]
ScheduleTtlFlag = Annotated[
    str, Option("--schedule-ttl", help="Time to live of the scheduled message", metavar="DURATION")
]


@dataclass(slots=True, kw_only=True)
class OutgoingMessage:
    """A message to send, how often, and the pause in between."""

    subject: str
    body: str | None = None
    reply: str = ""
    headers: list[str] = field(default_factory=list)
    count: int = 1
    sleep: str = ""
    force_stdin: bool = False
    send_on: str = _ON_EOF
    templates: bool = True
    sleep_seconds: float = 0.0
    header_templates: HeaderTemplates = field(init=False)
    subject_template: Template = field(init=False)

    def __post_init__(self) -> None:
        if not self.subject or any(part in ("*", ">") for part in self.subject.split(".")):
            raise CommandError(
                f"SUBJECT: messages cannot be sent to {self.subject!r}; name one subject, "
                "without the wildcards * and >",
                exit_code=EXIT_USAGE,
            )
        self.sleep_seconds = parse_duration_ns(self.sleep, "--sleep") / 1e9
        self.header_templates = HeaderTemplates(self.headers, functions=self.templates)
        self.subject_template = Template(self.subject, functions=self.templates)

    @property
    def is_told_each(self) -> bool:
        """Whether each message gets a line."""
        return self.count <= LINES_MAX

    async def bodies(self, *, quiet: bool) -> AsyncIterator[Template]:
        """The bodies: the one of the command line, the whole input, or each of its lines."""
        if self.body is not None and not self.force_stdin:
            yield Template(self.body, functions=self.templates)
            return
        if not has_input():
            yield Template("")
            return
        if not quiet:
            stamp("Reading payload from STDIN")
        if self.send_on == _ON_EOF:
            yield Template(await asyncio.to_thread(read_input), functions=self.templates)
            return
        while text := await asyncio.to_thread(sys.stdin.buffer.readline, INPUT_BYTES_MAX):
            yield Template(text.rstrip(b"\r\n"), functions=self.templates)

    async def messages(self, *, quiet: bool) -> AsyncIterator[tuple[str, bytes, Headers | None]]:
        """Subject, body and headers of one message after the other, as far apart as asked."""
        number = 0
        async for body in self.bodies(quiet=quiet):
            count = 0
            while self.count < 1 or count < self.count:
                if number and self.sleep_seconds:
                    await asyncio.sleep(self.sleep_seconds)
                number += 1
                count += 1
                moment = now(number)
                yield self._subject(moment), body.fill_bytes(moment), self._headers(moment)

    def _subject(self, moment: Moment) -> str:
        return self.subject_template.fill(moment)

    def _headers(self, moment: Moment) -> Headers | None:
        return self.header_templates.fill(moment)


@pub_app.command()
def publish(
    subject: SubjectArgument,
    body: BodyArgument = None,
    reply: ReplyFlag = "",
    header: HeaderFlag = None,
    count: CountFlag = 1,
    sleep: SleepFlag = "",
    force_stdin: StdinFlag = False,
    jetstream: JetstreamFlag = False,
    send_on: SendOnFlag = _ON_EOF,
    quiet: QuietFlag = False,
    templates: TemplatesFlag = True,
    atomic: AtomicFlag = False,
    schedule_at: ScheduleAtFlag = "",
    schedule_after: ScheduleAfterFlag = "",
    schedule_every: ScheduleEveryFlag = "",
    schedule_cron: ScheduleCronFlag = "",
    schedule_dest: ScheduleDestFlag = "",
    schedule_source: ScheduleSourceFlag = "",
    schedule_ttl: ScheduleTtlFlag = "",
) -> None:
    """Publish messages.

    Body, subject and headers may use functions: {{Count}} {{TimeStamp}} {{Time}} {{Unix}}
    {{UnixNano}} {{ID}} {{UUID}} and {{Random 10 100}}, a random text of 10 to 100 letters.
    """
    schedule = _schedule(
        {
            "at": schedule_at,
            "after": schedule_after,
            "every": schedule_every,
            "cron": schedule_cron,
        },
        target=schedule_dest,
        source=schedule_source,
        ttl=schedule_ttl,
    )
    outgoing = OutgoingMessage(
        subject=subject,
        body=body,
        reply=reply,
        headers=[*(header or []), *schedule],
        count=count,
        sleep=sleep,
        force_stdin=force_stdin,
        send_on=send_on,
        templates=templates,
    )
    if atomic:
        run_async(_publish_batch(outgoing, quiet=quiet))
    elif jetstream or schedule:
        run_async(_publish_stored(outgoing, quiet=quiet))
    else:
        run_async(_publish_core(outgoing, quiet=quiet))


@request_app.command()
def request(
    subject: SubjectArgument,
    body: BodyArgument = None,
    raw: Annotated[bool, Option("--raw", "-r", help="Print only the replies")] = False,
    header: HeaderFlag = None,
    count: CountFlag = 1,
    sleep: SleepFlag = "",
    replies: Annotated[
        int, Option("--replies", min=0, help="Number of replies; 0 for all that arrive in time")
    ] = 1,
    reply_timeout: Annotated[
        str, Option("--reply-timeout", help="Maximum time between replies", metavar="DURATION")
    ] = "300ms",
    wait_for_empty: Annotated[
        bool, Option("--wait-for-empty", help="Wait for an empty reply that ends the sequence")
    ] = False,
    translate: Annotated[
        str, Option("--translate", help="Pipe replies through a command", metavar="COMMAND")
    ] = "",
    force_stdin: StdinFlag = False,
    send_on: SendOnFlag = _ON_EOF,
    templates: TemplatesFlag = True,
    json: Annotated[bool, Option("--json", "-j", help="Print a line of JSON per reply")] = False,
) -> int:
    """Send requests and show the replies; exit code 1 if there is none."""
    outgoing = OutgoingMessage(
        subject=subject,
        body=body,
        headers=header or [],
        count=count,
        sleep=sleep,
        force_stdin=force_stdin,
        send_on=send_on,
        templates=templates,
    )
    asking = ReplyHandling(
        replies=replies,
        stall_seconds=parse_duration_ns(reply_timeout, "--reply-timeout") / 1e9,
        wait_for_empty=wait_for_empty,
        translate=translate,
        raw=raw or json,
        json=json,
    )
    return run_async(_request(outgoing, asking))


# ------------------------------------------------------------------ publishing


async def _publish_core(outgoing: OutgoingMessage, *, quiet: bool) -> None:
    troubles = Troubles()
    sent = 0
    async with await connect_async(on_event=troubles.on_event) as connection:
        with _bar(outgoing, quiet=quiet) as bar:
            async for subject, data, headers in outgoing.messages(quiet=quiet):
                await connection.publish(
                    subject, data, reply=outgoing.reply or None, headers=headers
                )
                sent += 1
                if outgoing.is_told_each or outgoing.sleep_seconds or sent % FLUSH_EVERY == 0:
                    await connection.flush()
                    troubles.check()
                    bar.set(sent)
                if outgoing.is_told_each and not quiet:
                    stamp(f'Published {len(data)} bytes to "{subject}"')
            await connection.flush()
            troubles.check()
            bar.set(sent)
    if not outgoing.is_told_each and not quiet:
        stamp(f'Published {count_text(sent)} messages to "{outgoing.subject}"')


async def _publish_stored(outgoing: OutgoingMessage, *, quiet: bool) -> None:
    from tradewind.client.errors import JetStreamUnavailableError

    sent = 0
    async with await connect_async() as connection:
        js = connection.jetstream()
        try:
            with _bar(outgoing, quiet=quiet) as bar:
                async for subject, data, headers in outgoing.messages(quiet=quiet):
                    sent += 1
                    if outgoing.is_told_each or outgoing.sleep_seconds:
                        await _store_one(js, subject, data, headers, quiet=quiet)
                    else:
                        await js.publish_async(subject, data, headers=headers)
                    bar.set(sent)
                await js.publish_async_completed()
        except JetStreamUnavailableError as error:
            raise _no_stream(outgoing.subject, error) from None
    if not outgoing.is_told_each and not outgoing.sleep_seconds and not quiet:
        stamp(f'Stored {count_text(sent)} messages of "{outgoing.subject}"')


async def _store_one(
    js: JetStream, subject: str, data: bytes, headers: Headers | None, *, quiet: bool
) -> None:
    if not quiet:
        stamp(f'Published {len(data)} bytes to "{subject}"')
    ack = await js.publish(subject, data, headers=headers)
    if not quiet:
        stamp(_stored_text(ack))


def _stored_text(ack: PubAck) -> str:
    text = f"Stored in Stream: {ack.stream} Sequence: {count_text(ack.seq)}"
    if ack.domain:
        text += f' Domain: "{ack.domain}"'
    if ack.duplicate:
        text += " Duplicate: true"
    if ack.val:
        text += f" Counter Value: {ack.val}"
    return text


async def _publish_batch(outgoing: OutgoingMessage, *, quiet: bool) -> None:
    from tradewind.client.errors import JetStreamUnavailableError

    if outgoing.count < 1:
        raise CommandError("--atomic requires --count of at least 1")
    async with await connect_async() as connection:
        batch = connection.jetstream().batch()
        last: tuple[str, bytes, Headers | None] | None = None
        try:
            async for message in outgoing.messages(quiet=quiet):
                if not quiet and outgoing.is_told_each:
                    stamp(f'Adding {len(message[1])} bytes to batch on subject "{message[0]}"')
                if last is not None:
                    await batch.add(last[0], last[1], headers=last[2])
                last = message
            if last is None:
                raise CommandError("--atomic: the input is empty, so there is nothing to store")
            ack = await batch.commit(last[0], last[1], headers=last[2])
        except JetStreamUnavailableError as error:
            raise _no_stream(outgoing.subject, error) from None
    if not quiet:
        stamp(
            f"Wrote batch ID: {batch.id} Messages: {count_text(batch.count)} "
            f"Sequence: {count_text(ack.seq)}"
        )


def _bar(outgoing: OutgoingMessage, *, quiet: bool) -> ProgressBar:
    return ProgressBar("Publishing", outgoing.count, shown=not quiet and not outgoing.is_told_each)


def _no_stream(subject: str, error: Exception) -> CommandError:
    return CommandError(
        str(error).partition(": create one")[0],
        f"create one: tradewind stream add NAME --subjects '{subject}' --defaults",
        "or publish without a stream: omit --jetstream",
    )


def _schedule(when: dict[str, str], *, target: str, source: str, ttl: str) -> list[str]:
    """The headers of a message that the server publishes later."""
    given = {name: text for name, text in when.items() if text}
    if not given:
        if target or source or ttl:
            raise CommandError("--schedule-dest requires --schedule-at, -after, -every or -cron")
        return []
    if len(given) > 1:
        flags = " and ".join(f"--schedule-{name}" for name in given)
        raise CommandError(f"{flags}: use only one of them", exit_code=EXIT_USAGE)
    if not target:
        raise CommandError("--schedule-dest is required: the subject of the scheduled message")
    name, text = next(iter(given.items()))
    pattern = schedule_rule(name, text, f"--schedule-{name}")
    headers = [f"Nats-Schedule:{pattern}", f"Nats-Schedule-Target:{target}"]
    headers += [f"Nats-Schedule-Source:{source}"] if source else []
    headers += [f"Nats-Schedule-TTL:{ttl}"] if ttl else []
    return headers


def schedule_rule(name: str, text: str, flag: str) -> str:
    """The rule that a flag says: at a time, after a delay, every interval, or as cron has it."""
    if name == "after":
        due = time.time() + parse_duration_ns(text, flag) / 1e9
        name, text = "at", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due))
    return text if name == "cron" else f"@{name} {text}"


# ------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHandling:
    """How many answers are wanted, and how they are shown."""

    replies: int
    stall_seconds: float
    wait_for_empty: bool
    translate: str
    raw: bool
    json: bool


async def _request(outgoing: OutgoingMessage, asking: ReplyHandling) -> int:
    from tradewind.client.errors import NoRespondersError

    answered = asked = 0
    async with await connect_async() as connection:
        async for subject, data, headers in outgoing.messages(quiet=asking.raw):
            asked += 1
            if not asking.raw:
                stamp(f'Sending request on "{subject}"')
            try:
                answered += await _ask(connection, subject, data, headers, asking)
            except NoRespondersError:
                stamp("No responders are available")
                return 1
            if not answered and not asking.raw:
                stamp(f"No answer within {connection.options.timeout:g} s (--timeout)")
    return 0 if answered or not asked else 1


async def _ask(
    connection: Connection,
    subject: str,
    data: bytes,
    headers: Headers | None,
    asking: ReplyHandling,
) -> int:
    """Send one request and show its answers; how many there were."""
    began_ns = time.perf_counter_ns()
    answered = 0
    several = asking.replies != 1 or asking.wait_for_empty
    async for reply in connection.request_many(
        subject,
        data,
        headers=headers,
        max_messages=0 if asking.wait_for_empty else asking.replies,
        stall=asking.stall_seconds if several and asking.replies > 1 else None,
        sentinel=(lambda message: not message.data) if asking.wait_for_empty else None,
    ):
        answered += 1
        rtt_ns = time.perf_counter_ns() - began_ns
        if asking.json:
            print_json_line(
                {
                    "subject": subject,
                    "data": reply.data,
                    "hdrs": {name: reply.headers.get_all(name) for name in reply.headers},
                    "rtt": rtt_ns,
                }
            )
            continue
        if not asking.raw:
            rtt = format_duration(rtt_ns // 1000 * 1000)
            stamp(f"Received with rtt {rtt}")
            fields = list(reply.headers.fields())
            for name, value in fields:
                stamp(f"{name}: {value}")
            if fields:
                stamp("")
        write_body(reply.data, asking.translate, raw=asking.raw)
    return answered
