"""The questions of `tradewind consumer add`.

Owns their texts, defaults and checks; the names and defaults are those of nats. Filters are checked
against the subjects of the stream, and the name against its other consumers, while they are asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.stream_types import StreamConfig
from tradewind.cli.consumers.consumer_flags import ConsumerFlags, apply_flags, filters, start_of
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.prompts import can_ask
from tradewind.cli.frame.questions import Answers, Dialog, DialogQuestion, count_answer, name_answer
from tradewind.cli.streams.stream_flags import split_subjects
from tradewind.subjects import collides_with_any, is_literal, is_valid_subject

if TYPE_CHECKING:
    from tradewind.cli.frame.account_catalog import AccountCatalog


def consumer_dialog(
    name: str,
    flags: ConsumerFlags,
    catalog: AccountCatalog | None,
    stream: StreamConfig | None,
    *,
    ask_all: bool,
) -> Dialog:
    """The questions that flags and name have not answered: all of them, or only the name."""
    given: dict[str, Any] = {
        key: value for key, value in vars(flags).items() if value not in (None, False)
    }
    if flags.headers_only is False:
        given["headers_only"] = False
    if flags.pull:
        given["deliver_subject"] = ""
    if name or flags.ephemeral:
        given["name"] = name
    questions = consumer_questions(catalog, stream)
    if not (ask_all and can_ask()):
        given = {each.key: given.get(each.key) for each in questions if each.key != "name"} | given
    return Dialog(questions, given)


def with_answers(config: ConsumerConfig, answers: Answers) -> ConsumerConfig:
    """The configuration with the answers, some of which are several members."""
    changes = dict(answers)
    changes |= changes.pop("deliver", {})
    if "filter_subjects" in changes:
        changes |= filters(changes["filter_subjects"])
    if changes.pop("backoff", False):
        policy = replace(ConsumerFlags(), backoff="linear")
        backoff = apply_flags(ConsumerConfig(), policy).backoff
        tries = changes.get("max_deliver", config.max_deliver)
        changes["backoff"] = backoff[: tries - 1] if tries > 0 else backoff
    return msgspec.convert(msgspec.to_builtins(config) | changes, ConsumerConfig)


def check_filters(stream: StreamConfig, subjects: list[str]) -> None:
    """CommandError if a filter can never match: nothing would ever be delivered.

    A mirror, or a stream with sources, stores subjects that its configuration does not name.
    """
    if not stream.subjects or stream.mirror or stream.sources or stream.subject_transform:
        return
    for subject in filter(None, subjects):
        if not collides_with_any(subject, stream.subjects):
            raise CommandError(
                f"--filter: {subject!r} matches no subject of Stream {stream.name}: "
                f"{', '.join(stream.subjects)}",
                exit_code=EXIT_USAGE,
            )


def consumer_questions(
    catalog: AccountCatalog | None, stream: StreamConfig | None
) -> list[DialogQuestion]:
    """The questions; without a stream nothing is checked against it."""
    return [
        DialogQuestion(
            "name",
            "Consumer name",
            "a name: consumer add STREAM NAME",
            "The name by which clients and commands know the consumer, for example packer.",
            convert=lambda text: _new_name(text, catalog, stream),
            words=("consumer name", "durable name", "consumer already exists"),
        ),
        DialogQuestion(
            "deliver_subject",
            "Delivery target (empty for Pull Consumers)",
            "--target or --pull",
            "Workers fetch from a pull consumer as they need it: leave it empty for that.\n"
            "A push consumer sends every message to this subject.",
            convert=_target,
            words=("deliver subject", "delivery subject", "push", "pull"),
        ),
        *_delivery_questions(stream),
        *_repetition_questions(),
    ]


def _delivery_questions(stream: StreamConfig | None) -> list[DialogQuestion]:
    return [
        DialogQuestion(
            "deliver",
            "Start policy (all, new, last, subject, 1h, msg sequence)",
            "--deliver",
            "all: from the first message on. new: what comes from now on. last: the last message.\n"
            "subject: the last message of each subject. 1h: of the last hour. 17: from there on.",
            default="all",
            convert=start_of,
            words=("deliver policy", "deliver all", "start sequence", "start time"),
        ),
        *_acknowledgment_questions(),
        DialogQuestion(
            "replay_policy",
            "Replay policy",
            "--replay",
            "instant: as fast as possible. original: with the pauses with which they were stored.",
            default="instant",
            options=("instant", "original"),
            words=("replay",),
        ),
        DialogQuestion(
            "filter_subjects",
            "Filter Stream by subjects (blank for all)",
            "--filter",
            "Only messages of these subjects are delivered; several are separated by blanks.",
            convert=lambda text: _filters(text, stream),
            words=("filter", "workqueue", "work queue"),
        ),
    ]


def _acknowledgment_questions() -> list[DialogQuestion]:
    pull = DialogQuestion(
        "ack_policy",
        "Acknowledgment policy",
        "--ack",
        "explicit: each message is acknowledged. all: one acknowledges all before it, too.\n"
        "none: what is delivered counts as done.",
        default="explicit",
        options=("explicit", "all", "none"),
        words=("ack policy", "explicit ack", "acknowledgement policy", "requires explicit"),
        when=lambda answers: not answers.get("deliver_subject"),
    )
    push = replace(
        pull,
        default="none",
        options=("none", "all", "explicit"),
        when=lambda answers: bool(answers.get("deliver_subject")),
    )
    return [pull, push]


def _repetition_questions() -> list[DialogQuestion]:
    return [
        DialogQuestion(
            "max_deliver",
            "Maximum Allowed Deliveries",
            "--max-deliver",
            "How often a message is delivered that is not acknowledged; -1 for no limit.",
            default="-1",
            convert=count_answer("--max-deliver"),
            words=("max deliver", "maximum deliver"),
            when=_acknowledges,
        ),
        DialogQuestion(
            "max_ack_pending",
            "Maximum Acknowledgments Pending",
            "--max-pending",
            "How many messages may wait for an acknowledgment; 0 for the server's default.",
            default="0",
            convert=count_answer("--max-pending"),
            words=("max ack pending", "pending"),
            when=_acknowledges,
        ),
        DialogQuestion(
            "headers_only",
            "Deliver headers only without bodies",
            "--headers-only",
            "Whether messages come without their payloads; a header has the size.",
            default="no",
            convert=bool,
            is_switch=True,
        ),
        DialogQuestion(
            "backoff",
            "Add a Retry Backoff Policy",
            "--backoff",
            "Whether the time before the next delivery grows, from 1 to 20 minutes.",
            default="no",
            convert=bool,
            is_switch=True,
            words=("backoff",),
            when=_acknowledges,
        ),
    ]


def _acknowledges(answers: Answers) -> bool:
    return answers.get("ack_policy") != "none"


def _new_name(text: str, catalog: AccountCatalog | None, stream: StreamConfig | None) -> str:
    name = name_answer("consumer")(text)
    if catalog is None or stream is None:
        return name
    if name in catalog.manager.consumers.names(stream.name).all():
        raise CommandError(
            f"Stream {stream.name} has a Consumer {name} already; choose another name, or leave "
            "with Ctrl-C and",
            f"change it: tradewind consumer edit {stream.name} {name}",
            exit_code=EXIT_USAGE,
        )
    return name


def _target(text: str) -> str:
    if text and not (is_valid_subject(text) and is_literal(text)):
        raise CommandError(
            f"--target must be a subject without wildcards, not {text!r}", exit_code=EXIT_USAGE
        )
    return text


def _filters(text: str, stream: StreamConfig | None) -> list[str]:
    subjects = split_subjects([text])
    for subject in subjects:
        if not is_valid_subject(subject):
            raise CommandError(
                f"--filter: {subject!r} must be a subject: tokens joined by dots, such as orders.*",
                exit_code=EXIT_USAGE,
            )
    if stream is not None:
        check_filters(stream, subjects)
    return subjects
