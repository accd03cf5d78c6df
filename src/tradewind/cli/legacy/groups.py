"""`jsm ms ...` and `jsm obs ...`: the commands of January 2020, with flags and fewer prompts.

Owns their flags, the prompts for missing flags, and their output. Both forms of `jsm` send the same
requests.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.output import Columns, print_json
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.cli.legacy import dialogs
from tradewind.cli.legacy.legacy_api import (
    OK,
    REFUSED,
    LegacyApi,
    ObservableConfig,
    Pair,
    SetConfig,
)
from tradewind.cli.legacy.program import Arguments, ask, say, si_bytes
from tradewind.durations import format_duration

RETENTIONS: Final = {
    "limits": "stream_limits",
    "interest": "interest_based",
    "work": "work_queue",
}


class _LegacyParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(message, f"see: {self.prog} --help", exit_code=EXIT_USAGE)


@dataclass(frozen=True, slots=True)
class SubCommand:
    """`names` are what has to be named; `flags` adds its own flags to a parser."""

    run: Callable[[LegacyApi, argparse.Namespace], None]
    names: tuple[str, ...]
    flags: Callable[[argparse.ArgumentParser], None] | None = None
    help_text: str = ""


# ---------------------------------------------------------------- message sets


def _set_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subjects", help="subjects to store, joined by commas")
    parser.add_argument("--storage", choices=("file", "memory"))
    parser.add_argument("--retention", choices=tuple(RETENTIONS), default="limits")
    parser.add_argument("--max-msgs", default="-1")
    parser.add_argument("--max-bytes", default="-1")
    parser.add_argument("--max-age", help="maximum age, such as 1m, 7d or 1y; -1 for no limit")
    parser.add_argument("--max-msg-size", default="-1")
    parser.add_argument("--no-ack", action="store_true", help="do not acknowledge publishes")


def _add_set(api: LegacyApi, given: argparse.Namespace) -> None:
    subjects = given.subjects if given.subjects is not None else ask("Subjects to consume: ")
    storage = given.storage or ask("Storage backend (file|memory): ")
    age = given.max_age if given.max_age is not None else ask("Maximum message age limit: ")
    config = SetConfig(
        name=given.mset,
        subjects=dialogs.split_list(subjects),
        retention=RETENTIONS[given.retention],
        max_msgs=dialogs.parse_count("--max-msgs", given.max_msgs),
        max_bytes=dialogs.parse_count("--max-bytes", given.max_bytes),
        max_age=parse_duration_ns(age, "--max-age"),
        max_msg_size=dialogs.parse_count("--max-msg-size", given.max_msg_size),
        storage=dialogs.parse_choice("storage", storage, ("file", "memory"), "file"),
        no_ack=given.no_ack,
    )
    _check(api.add_set(config))
    say(f"Message set {given.mset} was created")
    say("")
    _show_set(api, given.mset)


def _list_sets(api: LegacyApi, given: argparse.Namespace) -> None:
    _list(api.sets(), "Message Sets", is_json=given.json)


def _set_info(api: LegacyApi, given: argparse.Namespace) -> None:
    if given.json:
        print_json(api.set_info(given.mset))
    else:
        _show_set(api, given.mset)


def _show_set(api: LegacyApi, name: str) -> None:
    info = api.set_info(name)
    config, state = info.config, info.stats
    kept = {value: key.capitalize() for key, value in RETENTIONS.items()}
    columns = Columns(f"Information for message set {name}")
    columns.section("Configuration")
    columns.row("Subjects", config.subjects)
    columns.row("No Acknowledgements", config.no_ack)
    columns.row("Retention", f"{config.storage.capitalize()} - {kept[config.retention]}")
    columns.row("Replicas", config.num_replicas)
    columns.row("Maximum Messages", config.max_msgs)
    columns.row("Maximum Bytes", config.max_bytes)
    columns.row("Maximum Age", format_duration(config.max_age))
    columns.row("Maximum Message Size", config.max_msg_size)
    columns.row("Maximum Observables", config.max_observables)
    columns.section("Statistics")
    columns.row("Messages", state.messages)
    columns.row("Bytes", si_bytes(state.bytes))
    columns.row("FirstSeq", state.first_seq)
    columns.row("LastSeq", state.last_seq)
    columns.row("Active Observables", state.observable_count)
    columns.print()


def _remove_set(api: LegacyApi, given: argparse.Namespace) -> None:
    if _is_sure(given, f"Really delete message set {given.mset}"):
        _check(api.ask("$JS.MSGSET.DELETE", given.mset))


def _purge(api: LegacyApi, given: argparse.Namespace) -> None:
    if _is_sure(given, f"Really purge message set {given.mset}"):
        _check(api.ask("$JS.MSGSET.PURGE", given.mset))
        _show_set(api, given.mset)


def _remove_message(api: LegacyApi, given: argparse.Namespace) -> None:
    seq = dialogs.parse_sequence(given.seq)
    if _is_sure(given, f"Really remove message {seq} from message set {given.mset}"):
        _check(api.ask("$JS.MSGSET.MSG.DELETE", f"{given.mset} {seq}"))


def _get_message(api: LegacyApi, given: argparse.Namespace) -> None:
    seq = dialogs.parse_sequence(given.seq)
    message = api.message(given.mset, seq)
    if given.json:
        print_json(message)
        return
    say(f"Item: {given.mset}#{seq} received {message.time} on Subject {message.subject}")
    say("")
    say(message.data.decode("utf-8", "replace"))
    say("")


# ---------------------------------------------------------------- observables


def _observable_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", help="delivery subject; empty for a pull consumer")
    parser.add_argument("--pull", action="store_true", help="the same as --target ''")
    parser.add_argument("--deliver", help="where to start: all, last, new, 1h or a sequence")
    parser.add_argument("--ack", choices=dialogs.ACK_POLICIES)
    parser.add_argument("--replay", choices=dialogs.REPLAY_POLICIES, default="instant")
    parser.add_argument("--filter", default="", help="only messages of this subject")
    parser.add_argument("--wait", default="", help="time to wait for an ack, such as 30s")


def _add_observable(api: LegacyApi, given: argparse.Namespace) -> None:
    target = "" if given.pull else given.target
    if target is None:
        target = ask("Delivery target: ")
    start = given.deliver or ask("Start policy (all, last, 1h, msg sequence): ")
    config = ObservableConfig(
        durable_name=given.obs,
        delivery_subject=target,
        ack_policy=given.ack or ("none" if target else "explicit"),
        ack_wait=parse_duration_ns(given.wait, "--wait"),
        replay_policy=given.replay,
        subject=given.filter,
        **_start(start),
    )
    _check(api.add_observable(given.mset, config))
    _show_observable(api, given.mset, given.obs)


def _start(text: str) -> dict[str, Any]:
    if text in ("all", ""):
        return {"deliver_all": True}
    if text == "last":
        return {"deliver_last": True}
    if text == "new":
        return {}
    if text.isdigit():
        return {"msg_set_seq": dialogs.parse_sequence(text)}
    return {"start_time": dialogs.time_ago(text)}


def _list_observables(api: LegacyApi, given: argparse.Namespace) -> None:
    title = f"Observables for message set {given.mset}"
    _list(api.observables(given.mset), title, is_json=given.json)


def _observable_info(api: LegacyApi, given: argparse.Namespace) -> None:
    if given.json:
        print_json(api.observable_state(given.mset, given.obs))
    else:
        _show_observable(api, given.mset, given.obs)


def _show_observable(api: LegacyApi, name: str, observable: str) -> None:
    config = api.observable_config(name, observable)
    state = api.observable_state(name, observable)
    target = config.get("delivery_subject", "")
    columns = Columns(f"Information for observable {name} > {observable}")
    columns.section("Configuration")
    columns.row_if("Durable Name", config.get("durable_name", ""))
    columns.row("Delivery Subject" if target else "Pull Mode", target or True)
    columns.row_if("Subject", config.get("filter_subject", ""))
    columns.row("Deliver All", config.get("deliver_all", False))
    columns.row("Deliver Last", config.get("deliver_last", False))
    columns.row("Ack Policy", config.get("ack_policy", "none"))
    columns.row("Ack Wait", format_duration(config.get("ack_wait", 0)))
    columns.row("Replay Policy", config.get("replay_policy", "instant"))
    columns.section("State")
    columns.row("Next Delivered Message", _place(state.delivered))
    columns.row("Acknowledgment floor", _place(state.ack_floor))
    columns.row("Pending Messages", len(state.pending or {}))
    columns.row("Redelivered Messages", len(state.redelivery or {}))
    columns.print()


def _place(pair: Pair) -> str:
    return f"Observable sequence: {pair.observable} Message set sequence: {pair.message_set}"


def _remove_observable(api: LegacyApi, given: argparse.Namespace) -> None:
    if _is_sure(given, f"Really delete observable {given.mset} > {given.obs}"):
        _check(api.ask("$JS.OBSERVABLE.DELETE", f"{given.mset} {given.obs}"))


def _next(api: LegacyApi, given: argparse.Namespace) -> None:
    message = api.next_message(given.mset, given.obs)
    if not given.raw:
        say(f"--- received on {message.subject}")
    say(message.data.decode("utf-8", "replace"))
    if given.ack:
        api.acknowledge(message)
        if not given.raw:
            say("")
            say("Acknowledged message")


# ---------------------------------------------------------------- what they share


def _json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-j", "--json", action="store_true", help="print JSON")


def _force_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--force", action="store_true", help="do not ask for confirmation")


def _next_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raw", action="store_true", help="print the message only")
    parser.add_argument("--no-ack", dest="ack", action="store_false", help="do not acknowledge")


GROUPS: Final = {
    "ms": {
        "add": SubCommand(_add_set, ("mset",), _set_flags, "create a message set"),
        "ls": SubCommand(_list_sets, (), _json_flag, "list message sets"),
        "info": SubCommand(_set_info, ("mset",), _json_flag, "show a message set"),
        "rm": SubCommand(_remove_set, ("mset",), _force_flag, "remove a message set"),
        "purge": SubCommand(_purge, ("mset",), _force_flag, "remove its messages"),
        "rmm": SubCommand(_remove_message, ("mset", "seq"), _force_flag, "remove one message"),
        "get": SubCommand(_get_message, ("mset", "seq"), _json_flag, "show one message"),
    },
    "obs": {
        "add": SubCommand(
            _add_observable, ("mset", "obs"), _observable_flags, "create an observable"
        ),
        "ls": SubCommand(_list_observables, ("mset",), _json_flag, "list observables"),
        "info": SubCommand(_observable_info, ("mset", "obs"), _json_flag, "show an observable"),
        "rm": SubCommand(_remove_observable, ("mset", "obs"), _force_flag, "remove an observable"),
        "next": SubCommand(_next, ("mset", "obs"), _next_flags, "get the next message"),
    },
}
_PROMPTS: Final = {
    "mset": "Message Set Name: ",
    "obs": "Durable Name: ",
    "seq": "Message Sequence: ",
}


def parse(group: str, words: Arguments) -> tuple[SubCommand, argparse.Namespace]:
    """The command that is meant and its arguments; CommandError says what is wrong with them."""
    parser = _LegacyParser(prog=f"jsm {group}", allow_abbrev=False)
    parsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in GROUPS[group].items():
        inner = parsers.add_parser(
            name, help=command.help_text, allow_abbrev=False, prog=f"jsm {group} {name}"
        )
        for argument in command.names:
            inner.add_argument(argument, nargs="?")
        if command.flags is not None:
            command.flags(inner)
    given = parser.parse_args(list(words))
    return GROUPS[group][given.command], given


def run(api: LegacyApi, command: SubCommand, given: argparse.Namespace) -> int:
    """Do it, after asking for the names that are missing."""
    for argument in command.names:
        if getattr(given, argument) is None:
            setattr(given, argument, ask(_PROMPTS[argument]))
    command.run(api, given)
    return 0


def _check(answer: str) -> None:
    if not answer.startswith(OK):
        raise CommandError(answer.removeprefix(REFUSED).strip().strip("'"))


def _is_sure(given: argparse.Namespace, question: str) -> bool:
    return given.force or dialogs.parse_yes(ask(f"{question}? (y|N) "), default=False)


def _list(names: list[str], title: str, *, is_json: bool) -> None:
    if is_json:
        print_json(names)
        return
    say(f"{title}:" if names else f"No {title} defined")
    for name in names:
        say(f"\n\t{name}" if name == names[0] else f"\t{name}")
    say("")
