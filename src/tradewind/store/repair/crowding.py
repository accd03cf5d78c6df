"""Messages that limits remove because the deletions of other messages were lost in damage.

Owns the answer to one question of recovery. If damaged bytes recorded that messages were deleted,
these messages reappear, count towards the limits, and displace older ones that are intact. It
cannot be known which messages should not be there, so the limits apply as always, and every message
that is removed because of this is reported as lost first. It never changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tradewind.store.format.layout import RECORD_BYTES_MIN
from tradewind.store.repair.damage import DamageEntry, RecoveryReport

if TYPE_CHECKING:
    from tradewind.store.table.message_store import MessageStore

SUBJECTS_PAGE = 100_000


def forgotten_deletions_max(entries: Iterable[DamageEntry]) -> int:
    """The largest number of tombstones that damaged bytes may have held."""
    sizes = (entry.size + entry.missing for entry in entries if not entry.torn)
    return sum(-(-size // RECORD_BYTES_MIN) for size in sizes)


def tell_crowded_out(
    store: MessageStore, found: RecoveryReport, earlier: list[RecoveryReport]
) -> RecoveryReport | None:
    """Report the messages that the limits are about to remove wrongly; None if there are none.

    `found` is the report of this start. A start that was interrupted after its repair leaves the
    damage to an `earlier` report: it counts as long as nothing was stored since.
    """
    rooms = [forgotten_deletions_max(report.damage) for report in (found, *earlier)]
    if not any(rooms) or not store.limits.removes_for_others or not store.msgs:
        return None
    newest = store.last_sequence((b">",))
    recent = [report for report in earlier if report.last_seq >= newest]
    forgotten = max(forgotten_deletions_max(report.damage) for report in (found, *recent))
    if not forgotten:
        return None
    # Older ones had to go for messages that came before the crash.
    going = going_by_limits(store)
    told = {seq for report in earlier for seq in report.lost}
    lost = [seq for seq in sorted(going)[-forgotten:] if seq not in told]
    if not lost:
        return None
    note = (
        "messages whose deletion is forgotten may count for the limits of the stream; these took"
        f" {len(lost)} of sequences {lost[0]} to {lost[-1]}"
    )
    report = RecoveryReport(store.name, notes=[note])
    report.add_lost(lost)
    left = (message.seq for message in store.messages() if message.seq not in going)
    report.first_seq = next(left, store.last_seq + 1)
    return report


def going_by_limits(store: MessageStore) -> set[int]:
    """The messages that `apply_limits` will remove, except for those that are too old."""
    limits = store.limits
    going = set(_excess_of_subjects(store)) if limits.subject_msgs_max > 0 else set()
    if limits.discard_new:
        return going
    msgs = store.msgs - len(going)
    size = store.bytes - sum(store.counted_size(store.get(seq)) for seq in going)
    for message in store.messages():
        is_above = 0 < limits.msgs_max < msgs or 0 < limits.bytes_max < size
        if not is_above:
            break
        if message.seq not in going:
            going.add(message.seq)
            msgs -= 1
            size -= store.counted_size(message)
    return going


def _excess_of_subjects(store: MessageStore) -> Iterator[int]:
    offset = 0
    while page := store.subjects(offset=offset, limit=SUBJECTS_PAGE):
        offset += len(page)
        for subject, total in page.items():
            seq = 0
            for _ in range(total - store.limits.subject_msgs_max):
                seq = store.next_sequence(seq + 1, (subject,))
                yield seq
