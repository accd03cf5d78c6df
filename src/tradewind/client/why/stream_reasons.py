"""Explains in one sentence why a stream does not store, receive or remove messages.

Owns the order of the reasons: first what prevents storing, then what prevents receiving, then what
prevents removal. It works on given facts and never sends requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.api.stream_types import DiscardPolicy, RetentionPolicy
from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.client.why.consumer_reasons import Knowledge, explain, filter_subjects
from tradewind.client.why.reasons import Mood, Reason, command
from tradewind.client.why.texts import count, many, size, span, span_ns
from tradewind.durations import SECOND_NS
from tradewind.subjects import collide, is_subset

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.api.responses import AccountInfo
    from tradewind.api.stream_types import StreamInfo, StreamSourceInfo

# A mirror that has not been heard of for longer is not just quiet: servers look every few seconds.
QUIET_SECONDS: Final = 60.0
SUBJECTS_SHOWN: Final = 5
NUMBER_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StreamKnowledge:
    """The facts about a stream that its reason depends on.

    `subject` is the one whose messages should be stored here, or empty. `stored_by` are the streams
    that store that subject, and `subject_messages` is how many messages of it this stream has.
    `consumers` may not be all of them (`consumers_total`).
    """

    info: StreamInfo
    now_ns: int
    subject: str = ""
    stored_by: Sequence[str] | None = None
    subject_messages: int | None = None
    consumers: Sequence[ConsumerInfo] = ()
    consumers_total: int = 0
    account: AccountInfo | None = None
    stored_rate: float | None = None


def explain_stream(known: StreamKnowledge) -> Reason:
    """Why messages are not stored, do not arrive or do not go away; or that all is well."""
    looks = (
        _sealed,
        _uncovered,
        _leaderless,
        _full,
        _account_full,
        _mirror,
        _sources,
        _pointless,
        _lost,
        _held,
    )
    for look in looks:
        if (reason := look(known)) is not None:
            return reason
    return _well(known)


# ---------------------------------------------------------------------- not stored


def _sealed(known: StreamKnowledge) -> Reason | None:
    config = known.info.config
    if not config.sealed:
        return None
    return Reason(
        "stuck",
        "The stream is sealed: messages can no longer be stored or removed.",
        "Sealing cannot be undone; create a stream with the same settings and publish to that.",
        command("stream", "copy", config.name, f"{config.name}_2"),
    )


def _uncovered(known: StreamKnowledge) -> Reason | None:
    """The reason if the stream does not store the subject that was asked about."""
    config, subject = known.info.config, known.subject
    if not subject or any(is_subset(subject, wide) for wide in config.subjects):
        return None
    has = _listed(config.subjects) or "none"
    if config.mirror is not None:
        text = f"It is a mirror of {config.mirror.name}and stores only what that stream stores."
        return Reason(
            "stuck",
            text,
            f"Publish to the subjects of {config.mirror.name}.",
            command("stream", "why", config.mirror.name, "--subject", subject),
        )
    others = [name for name in known.stored_by or () if name != config.name]
    where = (
        f"messages to it are stored in {_listed(others)}"
        if others
        else "no stream stores it, so publishers get 'no responders'"
    )
    wanted = [item for subject_ in (*config.subjects, subject) for item in ("--subjects", subject_)]
    return Reason(
        "stuck",
        f"{subject} is not among its subjects ({has}); {where}.",
        "Add the subject to the stream, or publish to one of its subjects.",
        command("stream", "edit", config.name, *wanted),
    )


def _leaderless(known: StreamKnowledge) -> Reason | None:
    cluster = known.info.cluster
    if cluster is None or not cluster.name or cluster.leader:
        return None
    away = [peer.name for peer in cluster.replicas if peer.offline]
    text = f" ({_listed(away)} cannot be reached)" if away else ""
    return Reason(
        "stuck",
        f"It has no leader{text}, so nothing can be stored or read.",
        "Start its servers; more than half of them are needed.",
        command("server", "list"),
    )


def _full(known: StreamKnowledge) -> Reason | None:
    """A limit is reached, and what is new gives way."""
    config, state = known.info.config, known.info.state
    if config.discard is not DiscardPolicy.NEW:
        return None
    name = config.name
    advice = "Raise the limit, remove messages, or discard the oldest messages (discard old)."
    if 0 < config.max_msgs <= state.messages:
        return Reason(
            "stuck",
            f"It is full: it has {many(state.messages, 'message')} of {count(config.max_msgs)} "
            "(max_msgs) and refuses new ones (discard new).",
            advice,
            command("stream", "edit", name, "--max-msgs", min(2 * config.max_msgs, NUMBER_MAX)),
        )
    average = state.bytes // max(state.messages, 1)
    if config.max_bytes > 0 and state.messages and state.bytes + average > config.max_bytes:
        return Reason(
            "stuck",
            f"It is full: it has {size(state.bytes)} of {size(config.max_bytes)} (max_bytes), a "
            f"message takes {size(average)}, and new ones are refused (discard new).",
            advice,
            command("stream", "edit", name, "--max-bytes", min(2 * config.max_bytes, NUMBER_MAX)),
        )
    most = config.max_msgs_per_subject
    if config.discard_new_per_subject and 0 < most <= (known.subject_messages or 0):
        return Reason(
            "stuck",
            f"{known.subject} has {many(known.subject_messages or 0, 'message')} of {count(most)} "
            "(max_msgs_per_subject), and new ones are refused (discard_new_per_subject).",
            "Remove messages of that subject, or raise the limit.",
            command("stream", "edit", name, "--max-msgs-per-subject", min(2 * most, NUMBER_MAX)),
        )
    return None


def _account_full(known: StreamKnowledge) -> Reason | None:
    account, config = known.account, known.info.config
    if account is None:
        return None
    is_file = config.storage == "file"
    used = account.storage if is_file else account.memory
    most = account.limits.max_storage if is_file else account.limits.max_memory
    if most <= 0 or used < most:
        return None
    where = "on disk" if is_file else "in memory"
    return Reason(
        "stuck",
        f"The account uses {size(used)} {where} of the {size(most)} it is allowed, so nothing "
        "more is stored in any of its streams.",
        "Raise the limit of the account, or remove messages from one of its streams.",
        command("stream", "report"),
    )


def _pointless(known: StreamKnowledge) -> Reason | None:
    """Nothing can come in, or nothing stays."""
    config = known.info.config
    if not config.subjects and config.mirror is None and not config.sources:
        return Reason(
            "stuck",
            "It has no subjects, and neither mirrors nor sources another stream, so it "
            "receives nothing.",
            "Add subjects to it.",
            command("stream", "edit", config.name, "--subjects", "SUBJECTS"),
        )
    if config.retention is not RetentionPolicy.INTEREST or known.consumers_total:
        return None
    return Reason(
        "stuck",
        "It keeps messages for its consumers only (retention interest) and has none, so every "
        "message is dropped as soon as it arrives.",
        "Add a consumer before messages are published.",
        command("consumer", "add", config.name, "NAME", "--pull"),
    )


# ---------------------------------------------------------------------- do not arrive


def _mirror(known: StreamKnowledge) -> Reason | None:
    config = known.info.config
    if config.mirror is None:
        return None
    return _origin(config.mirror.name, known.info.mirror, "mirror")


def _sources(known: StreamKnowledge) -> Reason | None:
    states = {source.name: source for source in known.info.sources}
    for source in known.info.config.sources:
        reason = _origin(source.name, states.get(source.name), "source")
        if reason is not None:
            return reason
    return None


def _origin(name: str, state: StreamSourceInfo | None, kind: str) -> Reason | None:
    """Why messages of another stream do not arrive."""
    look = command("stream", "info", name)
    begin = f"It is a {kind} of {name}" if kind == "mirror" else f"Its source {name}"
    if state is not None and state.error is not None:
        said = state.error.description
        link = ", and the server says" if kind == "mirror" else " fails, and the server says"
        return Reason("stuck", f"{begin}{link}: {said}.", f"Check {name}.", look)
    quiet = None if state is None or state.active < 0 else state.active / SECOND_NS
    if quiet is None:
        link = ", which" if kind == "mirror" else ""
        text = f"{begin}{link} has never been reached."
        return Reason("stuck", text, f"Check that {name} exists and can be reached.", look)
    assert state is not None
    if quiet > QUIET_SECONDS:
        link = ", which" if kind == "mirror" else ""
        text = f"{begin}{link} was last reached {span(quiet)} ago."
        return Reason("stuck", text, f"Check that {name} can be reached.", look)
    if state.lag:
        link = ", and" if kind == "mirror" else ":"
        text = f"{begin}{link} {many(state.lag, 'message')} have not been copied yet."
        return Reason(
            "waiting", text, "Check again in a few seconds; they are copied one after the other."
        )
    return None


def _lost(known: StreamKnowledge) -> Reason | None:
    lost = known.info.state.lost
    if lost is None or not lost.msgs:
        return None
    return Reason(
        "stuck",
        f"{many(len(lost.msgs), 'message')} can no longer be read: the stored data is damaged "
        f"(first sequence {lost.msgs[0]}).",
        "Restore the stream from a backup, or read them from a mirror.",
        command("stream", "restore", "FOLDER"),
    )


# ---------------------------------------------------------------------- do not go away


def _held(known: StreamKnowledge) -> Reason | None:
    """Messages that stay until consumers have acknowledged them."""
    config, state = known.info.config, known.info.state
    if config.retention is RetentionPolicy.LIMITS or not state.messages:
        return None
    holding = [info for info in known.consumers if info.num_pending or info.num_ack_pending]
    if holding:
        slowest = min(holding, key=lambda info: info.ack_floor.stream_seq)
        why = explain(Knowledge(slowest, stream_messages=state.messages)).text
        left = slowest.num_pending + slowest.num_ack_pending
        return Reason(
            "waiting",
            f"{many(state.messages, 'message')} stay until they are acknowledged (retention "
            f"{config.retention.value}); consumer {slowest.name} holds {count(left)} of them: "
            f"{why[:1].lower()}{why[1:]}",
            "Have that consumer acknowledge, or remove it if it is no longer used.",
            command("consumer", "why", config.name, slowest.name),
        )
    if known.consumers_total > len(known.consumers):
        return None
    wanted = [pattern for info in known.consumers for pattern in filter_subjects(info)]
    unwanted = [
        subject
        for subject in config.subjects
        if not any(collide(subject, pattern) for pattern in wanted)
    ]
    what = f"no consumer matches {_listed(unwanted)}" if unwanted and wanted else "no consumer"
    text = (
        f"{what}, and messages stay until one has acknowledged them"
        if unwanted and wanted
        else "no consumer has them to acknowledge"
    )
    return Reason(
        "waiting",
        f"{many(state.messages, 'message')} stay (retention {config.retention.value}): {text}.",
        "Add a consumer for them, or purge them.",
        command("consumer", "add", config.name, "NAME", "--pull"),
    )


def _well(known: StreamKnowledge) -> Reason:
    """All is as it should be; what removes messages, and what may surprise."""
    config, state = known.info.config, known.info.state
    rate = known.stored_rate
    arrives = (
        f"It stores about {rate:,.0f} messages per second"
        if rate and rate >= 1
        else "It stores what arrives"
        if state.messages
        else "It is waiting for its first message"
    )
    text = f"{arrives}{_goes(known)}."
    notes = []
    if config.deny_purge or config.deny_delete:
        denied = [name for name in ("deny_purge", "deny_delete") if getattr(config, name)]
        notes.append(f"Nobody can remove messages by hand ({', '.join(denied)}).")
    if config.max_msg_size > 0:
        notes.append(f"Messages above {size(config.max_msg_size)} are refused (max_msg_size).")
    if config.duplicate_window > 0:
        notes.append(
            "A message with an ID that was stored within the last "
            f"{span_ns(config.duplicate_window)} counts as a duplicate and is not stored again."
        )
    mood: Mood = "good" if state.messages else "idle"
    return Reason(mood, text, " ".join(notes))


def _goes(known: StreamKnowledge) -> str:
    """When its messages go away."""
    config, state = known.info.config, known.info.state
    if config.retention is not RetentionPolicy.LIMITS:
        return ""
    parts = []
    is_new = config.discard is DiscardPolicy.NEW
    gives_way = "new ones are refused" if is_new else "the oldest are removed"
    for name, most, used in (
        ("max_msgs", config.max_msgs, state.messages),
        ("max_bytes", config.max_bytes, state.bytes),
    ):
        if most > 0:
            shown = size if name == "max_bytes" else count
            full = "it is full" if used >= most else f"{shown(used)} of {shown(most)} are used"
            parts.append(f"{gives_way} at {name} ({full})")
    if config.max_age > 0:
        parts.append(f"each is removed after {span_ns(config.max_age)}{_next_goes(known)}")
    if config.max_msgs_per_subject > 0:
        parts.append(f"the newest {count(config.max_msgs_per_subject)} of each subject are kept")
    if not parts:
        return ", and no limit removes anything"
    return "; " + ", ".join(parts)


def _next_goes(known: StreamKnowledge) -> str:
    state = known.info.state
    if not state.messages or state.first_ts == ZERO_TIME:
        return ""
    try:
        first_ns = parse_time(state.first_ts)
    except ValueError:
        return ""
    left = (first_ns + known.info.config.max_age - known.now_ns) / SECOND_NS
    return f", the oldest in {span(left)}" if left > 0 else ""


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SUBJECTS_SHOWN])
    more = len(names) - SUBJECTS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
