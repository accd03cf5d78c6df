"""`tradewind kv touch`, `increment` and `lock`: changes that depend on what a key holds.

Owns the commands, and the process that `kv lock` runs. It never implements the changes, which are
in the client library.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

from tradewind.cli.buckets.bucket_flags import find_bucket, seconds
from tradewind.cli.frame.command_loop import connect_async, run_until_stopped, stamp
from tradewind.cli.frame.completion import complete_kv
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, Option
from tradewind.cli.frame.output import line
from tradewind.cli.frame.settings import connect, jetstream

if TYPE_CHECKING:
    from tradewind.client.kv.kv import KeyValue

app = CommandApp("Changes of keys")

# As `timeout` and shells do: what cannot be run, and what a signal ended.
EXIT_NOT_RUN: Final = 127
EXIT_SIGNAL: Final = 128
STOP_SECONDS: Final = 10.0
_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,19}", re.ASCII)

BucketArgument = Annotated[
    str, Argument(help="Bucket name", show_default=False, autocompletion=complete_kv)
]


@app.command("touch")
def touch(
    bucket: BucketArgument,
    key: Annotated[str, Argument(help="Key")],
    ttl: Annotated[str, Argument(help="New time to live, such as 30s or 1h", metavar="DURATION")],
) -> None:
    """Let the value of a key expire after a new time to live."""
    lifetime = seconds(ttl, "DURATION")
    with connect() as connection:
        buckets = jetstream(connection).kv
        revision = find_bucket("kv", bucket, buckets.names, buckets.open).touch(key, lifetime)
    line(f"{bucket} > {key} expires in {ttl}, revision: {revision}")


@app.command("increment", aliases=("incr",))
def increment(
    bucket: BucketArgument,
    key: Annotated[str, Argument(help="Key")],
    by: Annotated[str, Argument(help="Number to add; write -- before a negative one")] = "1",
    ttl: Annotated[
        str, Option("--ttl", help="New time to live; otherwise it stays", metavar="DURATION")
    ] = "",
) -> None:
    """Add to the number that a key holds, and print the result."""
    lifetime = seconds(ttl, "--ttl") if ttl else "keep"
    number = _number(by)
    with connect() as connection:
        buckets = jetstream(connection).kv
        opened = find_bucket("kv", bucket, buckets.names, buckets.open)
        line(str(opened.increment(key, number, ttl=lifetime)))


@app.command("lock")
def lock(
    bucket: BucketArgument,
    key: Annotated[str, Argument(help="Key that is the lock")],
    command: Annotated[
        list[str], Argument(help="Command to run; write -- before it", show_default=False)
    ],
    ttl: Annotated[
        str,
        Option("--ttl", help="Free the lock this long after its holder died", metavar="DURATION"),
    ] = "30s",
    wait: Annotated[
        str, Option("--wait", help="Wait at most this long; 0s: not at all", metavar="DURATION")
    ] = "",
) -> None:
    """Run a command while holding a lock, and exit with its code.

    The lock is renewed while the command runs. If it is lost, the command gets SIGTERM. The command
    finds the fencing token in TRADEWIND_LOCK_TOKEN: it is larger for each holder than for all
    before. The bucket must allow values to expire (kv add --allow-ttl).
    """
    ttl_seconds = seconds(ttl, "--ttl")
    wait_seconds = seconds(wait, "--wait") if wait else None
    codes: list[int] = []
    run_until_stopped(_run_locked(bucket, key, command, ttl_seconds, wait_seconds, codes))
    exit_code = codes[0] if codes else EXIT_FAILED
    if exit_code:
        how = (
            f"was ended by signal {exit_code - EXIT_SIGNAL}"
            if exit_code > EXIT_SIGNAL
            else f"failed with exit code {exit_code}"
        )
        raise CommandError(f"{shlex.join(command)} {how}", exit_code=exit_code)


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise CommandError(
            f"BY must be a whole number of 64 bits, not {text[:32]!r}", exit_code=EXIT_USAGE
        )
    return int(text)


async def _run_locked(
    bucket: str,
    key: str,
    command: list[str],
    ttl_seconds: float,
    wait_seconds: float | None,
    codes: list[int],
) -> None:
    async with await connect_async() as connection:
        opened: KeyValue = await connection.jetstream().kv.open(bucket)
        async with opened.lock(key, ttl=ttl_seconds, timeout=wait_seconds) as held:
            codes.append(await _run(command, held.token))


async def _run(command: list[str], token: int) -> int:
    """Run the command to its end, also when this is cancelled; the exit code as shells have it."""
    environment = {**os.environ, "TRADEWIND_LOCK_TOKEN": str(token)}
    try:
        process = await asyncio.create_subprocess_exec(*command, env=environment)
    except OSError as error:
        raise CommandError(
            f"cannot run {shlex.join(command)}: {error.strerror or error}", exit_code=EXIT_NOT_RUN
        ) from None
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            await _stop(process, command)
    return code if code >= 0 else EXIT_SIGNAL - code


async def _stop(process: asyncio.subprocess.Process, command: list[str]) -> None:
    """End the command: it is asked first, and killed when it takes too long."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        stamp(f"{shlex.join(command)} did not end in {STOP_SECONDS:g} s and was killed")
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
