"""Message bodies as another program shows them, for `--translate COMMAND`.

Owns running the program: the body is its input, its output is shown instead.
"""

from __future__ import annotations

import subprocess

from tradewind.cli.failures import CommandError

SECONDS_MAX = 30


def translated(data: bytes, command: str, subject: str) -> bytes:
    """What a command line of the shell makes of a body; without a command the body itself.

    {{Subject}} in the command stands for the subject of the message.
    """
    if not command:
        return data
    import shlex

    line = command.replace("{{Subject}}", shlex.quote(subject))
    try:
        done = subprocess.run(  # noqa: S602 - the user's own command line
            line, shell=True, input=data, capture_output=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"--translate: {command!r} took more than {SECONDS_MAX} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise CommandError(f"--translate: {command!r} ended with {done.returncode}: {said}")
    return done.stdout.removesuffix(b"\n")
