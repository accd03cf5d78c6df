"""`tradewind reply`: answers requests with a text, an echo, or the output of a command.

Owns building the reply. A command receives the request in its environment, and where its line asks
for it: each word of the line is filled in once, after the line was split. No shell is involved.
"""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

from tradewind.cli.frame.command_loop import Troubles, connect_async, run_until_stopped, stamp
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.message_templates import CommandTemplate, Template, now
from tradewind.cli.frame.message_text import HeaderTemplates, write_body
from tradewind.cli.frame.output import line
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.client.core.headers import Headers
from tradewind.client.errors import BadHeaderError, MaxPayloadError

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg

app = CommandApp("Reply to requests")

DEFAULT_QUEUE: Final = "NATS-RPLY-22"
COMMAND_SECONDS: Final = 30.0


@dataclass(slots=True, kw_only=True)
class Answer:
    """The answer to requests: a body, an echo, or the output of a command."""

    body: str = ""
    echo: bool = False
    command: str = ""
    headers: list[str] = field(default_factory=list)
    sleep_seconds: float = 0.0
    header_templates: HeaderTemplates = field(init=False)
    body_template: Template = field(init=False)
    command_template: CommandTemplate | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.header_templates = HeaderTemplates(self.headers)
        self.body_template = Template(self.body)
        try:
            if self.command:
                self.command_template = CommandTemplate(self.command)
        except ValueError as error:
            raise CommandError(
                f"--command {self.command!r}: {error}", exit_code=EXIT_USAGE
            ) from None

    async def make(self, number: int, request: Msg) -> tuple[bytes, Headers | None]:
        """Body and headers of the answer to a request."""
        moment = now(number, request.data, request.subject)
        headers = self.header_templates.fill(moment)
        if self.sleep_seconds:
            await asyncio.sleep(random.uniform(0, self.sleep_seconds))  # noqa: S311 - no secret
        if self.echo:
            made = headers or Headers()
            for name, value in request.headers.fields():
                made.add(name, value)
            made["NATS-Reply-Counter"] = str(number)
            return request.data, made
        if self.command_template is not None:
            words = self.command_template.fill(moment)
            return await self._run(words, request), headers
        return self.body_template.fill_bytes(moment), headers

    async def _run(self, words: list[str], request: Msg) -> bytes:
        """The output of the command for a request, or of its failure."""
        text = shlex.join(words)
        environment = {
            **os.environ,
            "NATS_REQUEST_SUBJECT": request.subject.replace("\0", ""),
            "NATS_REQUEST_BODY": _text(request.data),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            return self._failed(text, error.strerror or str(error))
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            return self._failed(text, f"it took longer than {COMMAND_SECONDS:g} s")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            stamp(f'Command "{text}" failed to run: exit code {process.returncode}')
        return output

    def _failed(self, text: str, reason: str) -> bytes:
        stamp(f'Command "{text}" failed to run: {reason}')
        return f"command failed: {reason}".encode()


def _text(data: bytes) -> str:
    """A body as text for the environment of a command, which can hold no zero bytes."""
    return data.replace(b"\0", b"").decode(errors="surrogateescape")


@app.command()
def reply(
    subject: Annotated[str, Argument(help="Subject to listen on; wildcards are allowed")],
    body: Annotated[str, Argument(help="Body of the replies", show_default=False)] = "",
    echo: Annotated[bool, Option("--echo", help="Echo the request")] = False,
    command: Annotated[
        str,
        Option("--command", help="Run this command and reply with its output", metavar="COMMAND"),
    ] = "",
    queue: Annotated[str, Option("--queue", "-q", help="Queue group")] = (DEFAULT_QUEUE),
    sleep: Annotated[
        str, Option("--sleep", help="Wait a random time up to this before replying", metavar="MAX")
    ] = "",
    header: Annotated[
        list[str] | None, Option("--header", "-H", help="A header, NAME:VALUE", show_default=False)
    ] = None,
    count: Annotated[int, Option("--count", min=0, help="Stop after this many requests")] = 0,
) -> None:
    """Reply to requests until Ctrl-C.

    Body and headers may use functions as in `pub`, and {{Request}} for the body of the request. In
    a command {{0}}, {{1}} ... are the tokens of the subject: with weather.> a request on
    weather.london runs --command "weather {{1}}" as `weather london`. Whatever a request holds, it
    stays one argument; write -- before it if the command has options. The request is also in
    NATS_REQUEST_SUBJECT and NATS_REQUEST_BODY.
    """
    if not body and not command and not echo:
        stamp("No body or command supplied, enabling echo mode")
        echo = True
    answer = Answer(
        body=body,
        echo=echo,
        command=command,
        headers=header or [],
        sleep_seconds=parse_duration_ns(sleep, "--sleep") / 1e9,
    )
    run_until_stopped(_serve(subject, queue, answer, count))


async def _serve(subject: str, queue: str, answer: Answer, count: int) -> None:
    troubles = Troubles()
    async with await connect_async(on_event=troubles.on_event) as connection:
        subscription = await connection.subscribe(subject, queue=queue, max_msgs=count)
        await connection.flush()
        troubles.check()
        stamp(f'Listening on "{subject}" in group "{queue}"')
        number = 0
        async for message in subscription:
            await _answer_one(connection, number, message, answer)
            number += 1
        await connection.flush()


async def _answer_one(connection: Connection, number: int, message: Msg, answer: Answer) -> None:
    stamp(f'[#{number}] Received on subject "{message.subject}":')
    for name, value in message.headers.fields():
        stamp(f"{name}: {value}")
    line()
    write_body(message.data)
    began = time.perf_counter()
    try:
        data, headers = await answer.make(number, message)
        if not message.reply:
            return
        await message.respond(data, headers=headers)
    except (BadHeaderError, MaxPayloadError) as error:
        # Headers of one request must not end the service for all others.
        stamp(f"[#{number}] Not answered: {error}")
        return
    if time.perf_counter() - began > 1:
        await connection.flush()
