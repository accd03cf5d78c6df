"""The questions of `tradewind stream add`.

Owns their texts, defaults and checks; the names and defaults are those of nats. The server is
consulted while the questions are asked: for names in use, and for subjects of other streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.questions import (
    Answers,
    DialogQuestion,
    count_answer,
    name_answer,
    replicas_answer,
)
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_size
from tradewind.cli.streams.stream_flags import split_subjects
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.cli.frame.account_catalog import AccountCatalog


def stream_questions(catalog: AccountCatalog | None) -> list[DialogQuestion]:
    """The questions; without a catalog no server is asked."""
    return [
        DialogQuestion(
            "name",
            "Stream Name",
            "the name: stream add NAME",
            "The name by which clients and commands know the stream, for example ORDERS.",
            convert=lambda text: _new_name(text, catalog),
            words=("stream name",),
        ),
        DialogQuestion(
            "subjects",
            "Subjects",
            "--subjects",
            "The stream stores what is published to these subjects. * stands for one token and >\n"
            "for all that follow; several are separated by blanks: orders.* refunds.>",
            convert=lambda text: _subjects(text, catalog),
            words=("subject",),
            when=lambda answers: not (answers.get("mirror") or answers.get("sources")),
        ),
        *_storage_questions(),
        *_limit_questions(),
        *_permission_questions(),
    ]


def _storage_questions() -> list[DialogQuestion]:
    return [
        DialogQuestion(
            "storage",
            "Storage",
            "--storage",
            "file survives a restart of the server, memory does not.",
            default="file",
            options=("file", "memory"),
            words=("storage type", "memory storage"),
        ),
        DialogQuestion(
            "num_replicas",
            "Replication",
            "--replicas",
            "How many servers of a cluster store each message, 1 to 5. A server alone has 1.",
            default="1",
            convert=replicas_answer,
            words=("replicas",),
        ),
        DialogQuestion(
            "retention",
            "Retention Policy",
            "--retention",
            "limits: messages stay until a limit is reached.\n"
            "interest: a message is removed when all consumers have acknowledged it.\n"
            "workqueue: the same, with one consumer per subject.",
            default="limits",
            options=("limits", "interest", "workqueue"),
            words=("retention", "workqueue", "work queue"),
            when=_is_own,
        ),
        DialogQuestion(
            "discard",
            "Discard Policy",
            "--discard",
            "If a limit is reached, old removes the oldest messages, and new refuses further ones.",
            default="old",
            options=("old", "new"),
            words=("discard",),
            when=_is_own,
        ),
    ]


def _limit_questions() -> list[DialogQuestion]:
    return [
        DialogQuestion(
            "max_msgs",
            "Stream Messages Limit",
            "--max-msgs",
            "How many messages the stream has at most; -1 for no limit.",
            default="-1",
            convert=count_answer("--max-msgs"),
            words=("max msgs", "maximum messages"),
        ),
        DialogQuestion(
            "max_msgs_per_subject",
            "Per Subject Messages Limit",
            "--max-msgs-per-subject",
            "How many messages each subject has at most; -1 for no limit.",
            default="-1",
            convert=count_answer("--max-msgs-per-subject"),
            words=("per subject",),
        ),
        DialogQuestion(
            "max_bytes",
            "Total Stream Size",
            "--max-bytes",
            "The size of all messages together, such as 10MB or 1.5GiB; -1 for no limit.",
            default="-1",
            convert=lambda text: parse_size(text, "--max-bytes"),
            words=("max bytes", "max_bytes", "storage resources", "memory resources", "storage"),
        ),
        DialogQuestion(
            "max_age",
            "Message TTL",
            "--max-age",
            "How long messages are stored, such as 30s, 2h, 7d or 1y; -1 for no limit.",
            default="-1",
            convert=lambda text: parse_duration_ns(text, "--max-age"),
            words=("max age",),
        ),
        DialogQuestion(
            "max_msg_size",
            "Max Message Size",
            "--max-msg-size",
            "The largest message that is stored, such as 64KB; -1 for no limit.",
            default="-1",
            convert=lambda text: parse_size(text, "--max-msg-size"),
            words=("message size",),
        ),
        DialogQuestion(
            "duplicate_window",
            "Duplicate tracking time window",
            "--dupe-window",
            "A message whose Nats-Msg-Id came before within this time is not stored again.",
            default="2m0s",
            convert=lambda text: parse_duration_ns(text, "--dupe-window"),
            words=("duplicate",),
            when=_is_own,
        ),
    ]


def _permission_questions() -> list[DialogQuestion]:
    return [
        DialogQuestion(
            "allow_rollup_hdrs",
            "Allow message Roll-ups",
            "--allow-rollup",
            "Whether a message with the header Nats-Rollup may replace all those before it.",
            default="no",
            convert=bool,
            is_switch=True,
            words=("roll-up", "rollup"),
        ),
        DialogQuestion(
            "deny_delete",
            "Allow message deletion",
            "--deny-delete",
            "Whether clients may delete single messages. If denied, that cannot be changed later.",
            default="yes",
            convert=lambda is_allowed: not is_allowed,
            is_switch=True,
        ),
        DialogQuestion(
            "deny_purge",
            "Allow purging subjects or the entire stream",
            "--deny-purge",
            "Whether clients may remove many messages at once. If denied, that cannot be changed\n"
            "later.",
            default="yes",
            convert=lambda is_allowed: not is_allowed,
            is_switch=True,
            words=("purge",),
        ),
    ]


def _is_own(answers: Answers) -> bool:
    """Whether the stream stores messages of its own: a mirror takes these settings over."""
    return not answers.get("mirror")


def _new_name(text: str, catalog: AccountCatalog | None) -> str:
    name = name_answer("stream")(text)
    if catalog is not None and name in catalog.manager.streams.names().all():
        raise CommandError(
            f"Stream {name} exists already; choose another name, or leave with Ctrl-C and",
            f"change it: tradewind stream edit {name}",
            exit_code=EXIT_USAGE,
        )
    return name


def _subjects(text: str, catalog: AccountCatalog | None) -> list[str]:
    subjects = split_subjects([text])
    if not subjects:
        raise CommandError("--subjects must name a subject, for example orders.*")
    for subject in subjects:
        if not is_valid_subject(subject):
            raise CommandError(
                f"{subject!r} must be a subject: tokens joined by dots, such as orders.*",
                exit_code=EXIT_USAGE,
            )
        if catalog is not None and (others := catalog.manager.streams.names(subject).all()):
            raise CommandError(
                f"{subject!r} overlaps with the subjects of Stream {others[0]}; a subject belongs "
                "to one stream only",
                exit_code=EXIT_USAGE,
            )
    return subjects
