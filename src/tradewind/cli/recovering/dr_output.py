"""The output of the commands of `tradewind dr`.

Owns the texts: the table of streams, the plan of a dry run, the result of a comparison and of a
change-over. No server is contacted here.
"""

from __future__ import annotations

from typing import Final

from tradewind.cli.frame.output import Table, line
from tradewind.cli.frame.text_formats import count_text, counted, duration_text, short_duration
from tradewind.recovery.contents import Comparison
from tradewind.recovery.protection_status import RecoveryState, StreamStatus
from tradewind.recovery.recovery_journal import RecoveryJournal, RecoveryKind, RecoveryStep

_STEP_TEXTS: Final = {
    RecoveryStep.FENCE: "The origin accepts no more messages: its subjects are parked.",
    RecoveryStep.SAVE: "Both histories are compared; what only the origin has goes to {saved}.",
    RecoveryStep.REBUILD: "The origin is deleted and recreated as a mirror through {api}.",
    RecoveryStep.FOLLOW: "The mirror at the {taker} catches up and is compared; clients keep "
    "working.",
    RecoveryStep.FREEZE: "The {giver} is frozen: publishes are rejected, consumers are paused.",
    RecoveryStep.TRANSFER: "The {taker} receives the last messages.",
    RecoveryStep.VERIFY: "Messages stored since are compared one by one.",
    RecoveryStep.DETACH: "The standby detaches from its origin and records its last sequence.",
    RecoveryStep.CONSUMERS: "The consumers are created at the {taker} at their positions.",
    RecoveryStep.PROMOTE: "The {taker} takes over the subjects; consumers continue there.",
    RecoveryStep.REMIRROR: "The standby is deleted and recreated as a mirror of the origin.",
}


def print_status(statuses: list[StreamStatus]) -> None:
    """A table, and a line for each problem and note."""
    table = Table(
        "Disaster recovery",
        *("Stream", "State", "Mirror", "Lag", "RPO", "Seen", "Consumers"),
        drop=("Seen", "Consumers", "Mirror"),
    )
    for status in statuses:
        recorded = sum(each.recorded_floor is not None for each in status.consumers)
        table.row(
            status.stream,
            status.state.value,
            "connected" if status.is_connected else "no",
            "" if status.lag_messages is None else count_text(status.lag_messages),
            rpo_text(status),
            _ago(status.last_seen_ns),
            f"{recorded} of {len(status.consumers)} recorded",
        )
    table.print()
    for status in statuses:
        for consumer in status.consumers:
            known = consumer.recorded_floor
            line(
                f"{status.stream}: consumer {consumer.name} is done up to {consumer.floor}, "
                + ("not recorded" if known is None else f"recorded up to {known}")
            )
        for problem in status.problems:
            line(f"{status.stream}: problem: {problem}")
        for text in status.notes:
            line(f"{status.stream}: note: {text}")
        verdict = "possible" if status.can_fail_over else "not possible"
        line(f"{status.stream}: a planned failover is {verdict}")


def watch_line(status: StreamStatus) -> str:
    """One line for a log."""
    lag = "?" if status.lag_messages is None else count_text(status.lag_messages)
    text = f"{status.stream}: {status.state}, lag {lag}, RPO {rpo_text(status)}"
    return f"{text}; {'; '.join(status.problems)}" if status.problems else text


def rpo_text(status: StreamStatus) -> str:
    """How much time would be lost."""
    if status.state in (RecoveryState.FAILED_OVER, RecoveryState.TWO_WRITERS):
        return ""
    return "unknown" if status.rpo_ns is None else short_duration(status.rpo_ns)


def print_comparison(stream: str, found: Comparison) -> None:
    """How much is the same, and each range that is not."""
    line(
        f"{stream}: {counted(found.messages, 'message')} up to sequence {found.last_seq} agree, "
        f"in {counted(found.ranges, 'range')}"
    )
    for text in found.describe():
        line(f"{stream}: {text}")
    if found.is_same:
        verdict = "both sides hold the same"
    elif found.is_covered:
        verdict = "the standby has everything, and messages that were removed at the origin"
    else:
        verdict = "the standby does not have everything"
    line(f"{stream}: {verdict}")


def print_plan(journal: RecoveryJournal) -> None:
    """The steps of a dry run."""
    is_back = journal.kind is RecoveryKind.FAILBACK
    words = {
        "giver": "standby" if is_back else "origin",
        "taker": "origin" if is_back else "standby",
        "saved": journal.saved_file,
        "api": journal.standby_api,
    }
    steps = [step for step in journal.steps if step is not RecoveryStep.DONE]
    for number, step in enumerate(steps, 1):
        line(f"{number}. {step}: {_STEP_TEXTS[step].format(**words)}")


def print_result(journal: RecoveryJournal) -> None:
    """Print the result of a change-over."""
    stream = journal.stream
    consumers = counted(len(journal.consumers), "consumer")
    if journal.kind is RecoveryKind.LOST:
        when = f", stored at {journal.last_time}" if journal.last_seq else ""
        line(f"{stream}: the standby has everything up to sequence {journal.last_seq}{when}")
        line(
            f"{stream}: messages that the origin acknowledged after that are missing until a "
            "failback saves them"
        )
        if journal.seen_seq > journal.last_seq:
            missing = counted(journal.seen_seq - journal.last_seq, "message")
            line(f"{stream}: at least {missing}: the origin was recorded at {journal.seen_seq}")
    else:
        pause = duration_text(journal.pause_ns)
        line(f"{stream}: nothing is missing; publishers paused for {pause}")
    taker = "origin" if journal.kind is RecoveryKind.FAILBACK else "standby"
    line(f"{stream}: the {taker} accepts messages now, with {consumers}")
    if journal.saved_messages:
        saved = counted(journal.saved_messages, "message")
        line(f"{stream}: saved, because only the old origin had them: {saved}")
        line(f"publish them again: tradewind dr republish {journal.saved_file} --to ORIGIN")


def _ago(duration_ns: int | None) -> str:
    return "" if duration_ns is None else f"{short_duration(duration_ns)} ago"
