"""`jsm`, the tool of the first JetStream preview: message sets and observables.

Owns its commands, in the form of 2019 (`jsm add-obs`) and of January 2020 (`jsm obs add`), and
their output. Requests are in `legacy_api.py`, dialogs in `dialogs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tradewind.cli.frame.failures import EXIT_FAILED, CommandError
from tradewind.cli.frame.settings import connect, current
from tradewind.cli.frame.text_formats import count_text
from tradewind.cli.legacy import dialogs, groups
from tradewind.cli.legacy.legacy_api import OK, REFUSED, LegacyApi
from tradewind.cli.legacy.program import (
    CONNECT_FLAGS,
    Arguments,
    ask,
    run_program,
    say,
    si_bytes,
    take_flags,
)

USAGE: Final = """\
Usage:
  jsm [-s server] [-creds file] [command]

Available Commands:
  info                   # Usage and limits of the account

  ls                     # List all message sets
  add                    # Create a message set; prompts for its settings
  rm     [mset]          # Remove a message set
  purge  [mset]          # Remove the messages of a message set
  rm-msg [mset] [seq]    # Remove one message and overwrite its data
  info   [mset]          # Show a message set

  add-obs                # Create an observable; prompts for its settings
  ls-obs   [mset]        # List the observables of a message set
  rm-obs   [mset] [obs]  # Remove an observable
  info-obs [mset] [obs]  # Show the progress of an observable
  next     [mset] [obs]  # Get the next message of a pull observable

  ms  [add|ls|info|rm|purge|rmm|get]  # The same with flags, as in 2020
  obs [add|ls|info|rm|next]

This tool is kept for articles about the preview. Use instead: tradewind stream, tradewind consumer
"""


@dataclass(frozen=True, slots=True)
class Command:
    """`counts` are the numbers of arguments that it takes."""

    run: Callable[[LegacyApi, Arguments], int]
    counts: tuple[int, ...]


def _info(api: LegacyApi, names: Arguments) -> int:
    if len(names) == 2:
        return _observable_info(api, names)
    if names:
        state = api.set_info(names[0]).stats
        say("")
        say(f"Messages: {count_text(state.messages)}")
        say(f"Bytes:    {si_bytes(state.bytes)}")
        say(f"FirstSeq: {count_text(state.first_seq)}")
        say(f"LastSeq:  {count_text(state.last_seq)}")
        say("")
        return 0
    info = api.account()
    limits = info.limits
    say("")
    say(f"Memory:  {si_bytes(info.memory)} of {_limit(limits.max_memory, si_bytes)}")
    say(f"Storage: {si_bytes(info.storage)} of {_limit(limits.max_storage, si_bytes)}")
    say(f"MsgSets: {count_text(info.msg_sets)} of {_limit(limits.max_msg_sets, count_text)}")
    say("")
    return 0


def _limit(value: int, shown: Callable[[int], str]) -> str:
    return "Unlimited" if value < 0 else shown(value)


def _list(names: list[str]) -> int:
    say("")
    for number, name in enumerate(names, 1):
        say(f"{number}) {name}")
    if not names:
        say("None")
    say("")
    return 0


def _list_sets(api: LegacyApi, _: Arguments) -> int:
    return _list(api.sets())


def _list_observables(api: LegacyApi, names: Arguments) -> int:
    return _list(api.observables(names[0]))


def _answer(text: str) -> int:
    """Show the answer of the server as it came; a refusal is a failure of the command too."""
    say(f'Received response of "{text}"')
    return 0 if text.startswith(OK) else EXIT_FAILED


def _add_set(api: LegacyApi, _: Arguments) -> int:
    say("Enter the following information")
    return _answer(api.add_set(dialogs.ask_set(ask)))


def _remove_set(api: LegacyApi, names: Arguments) -> int:
    return _answer(api.ask("$JS.MSGSET.DELETE", names[0]))


def _purge(api: LegacyApi, names: Arguments) -> int:
    return _answer(api.ask("$JS.MSGSET.PURGE", names[0]))


def _remove_message(api: LegacyApi, names: Arguments) -> int:
    seq = dialogs.parse_sequence(names[1])
    return _answer(api.ask("$JS.MSGSET.MSG.DELETE", f"{names[0]} {seq}"))


def _add_observable(api: LegacyApi, _: Arguments) -> int:
    say("Enter the following information")
    return _answer(api.add_observable(*dialogs.ask_observable(ask, api)))


def _remove_observable(api: LegacyApi, names: Arguments) -> int:
    return _answer(api.ask("$JS.OBSERVABLE.DELETE", f"{names[0]} {names[1]}"))


def _observable_info(api: LegacyApi, names: Arguments) -> int:
    text = api.ask("$JS.OBSERVABLE.INFO", f"{names[0]} {names[1]}")
    say(f"Received response of {text}")
    return EXIT_FAILED if text.startswith(REFUSED) else 0


def _next(api: LegacyApi, names: Arguments) -> int:
    message = api.next_message(names[0], names[1])
    say(f"Received response of {message.data.decode('utf-8', 'replace')}")
    say(f"Reply: {message.reply}")
    if dialogs.parse_yes(ask("Ack? (Y|n) "), default=True):
        api.acknowledge(message)
    return 0


COMMANDS: Final = {
    "info": Command(_info, (0, 1, 2)),
    "ls": Command(_list_sets, (0,)),
    "add": Command(_add_set, (0,)),
    "rm": Command(_remove_set, (1,)),
    "purge": Command(_purge, (1,)),
    "rm-msg": Command(_remove_message, (2,)),
    "add-obs": Command(_add_observable, (0,)),
    "ls-obs": Command(_list_observables, (1,)),
    "rm-obs": Command(_remove_observable, (2,)),
    "info-obs": Command(_observable_info, (2,)),
    "next": Command(_next, (2,)),
}
ALIASES: Final = {
    "list": "ls",
    "create": "add",
    "del": "rm",
    "delete": "rm",
    "del-msg": "rm-msg",
    "delmsg": "rm-msg",
    "rmmsg": "rm-msg",
    "create-obs": "add-obs",
    "list-obs": "ls-obs",
    "del-obs": "rm-obs",
    "delete-obs": "rm-obs",
    "inf-obs": "info-obs",
    "next-msg": "next",
}


def _resolve(words: Arguments) -> Callable[[LegacyApi], int]:
    """The function that runs a command; CommandError if the command or arguments are unknown."""
    name = words[0].lower()
    if name in groups.GROUPS:
        group_command, given = groups.parse(name, words[1:])
        return lambda api: groups.run(api, group_command, given)
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None or len(words) - 1 not in command.counts:
        raise CommandError(f"no command {' '.join(words)!r} with these arguments", "see: jsm -h")
    return lambda api: command.run(api, words[1:])


def main() -> int:
    """The executable `jsm`: the exit code is 0 only if the server did what was asked."""
    return run_program("jsm", _main)


def _main(arguments: list[str]) -> int:
    flags, words = take_flags(arguments, CONNECT_FLAGS)
    if flags.is_help or not words:
        say(USAGE)
        return 0 if flags.is_help else EXIT_FAILED
    run = _resolve(words)
    with connect() as connection:
        return run(LegacyApi(connection, current().timeout))
