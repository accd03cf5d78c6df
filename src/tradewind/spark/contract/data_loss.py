"""The one rule of what counts as data loss, for all ways of reading.

Owns the decision; missing messages are found by the readers (`proof` for a server, `block_proof`
for files). The table in docs/how-to/SPARK.md says the same:

- a stream that was deleted, or deleted and created again, is lost;
- a message that was there when the read was planned has to be read; one that was removed before is
  a gap, unless a streaming query wanted to go on there and the stream now begins after it;
- in a batch that begins at the earliest message, and whose `failOnDataLoss` is not set, a removal
  at the head of the stream only makes "earliest" later: it is counted and logged;
- a stream that keeps only the last messages of a subject replaces messages, and a bucket is such a
  stream: a message that is missing there is no loss.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tradewind.spark.errors import DataLossError

if TYPE_CHECKING:
    from tradewind.spark.options.source_options import SourceOptions

logger = logging.getLogger(__name__)
# Advice about a loss, by what was used to read: only what that offers.
ADVICE: Final[Mapping[str, str]] = {
    "spark": "set failOnDataLoss=false to continue without them",
    "pipeline": "set data_loss: continue on the source to continue without them",
    "pipeline bucket": "use another checkpoint to read the bucket anew",
    "sql": "run the query again",
    "job": "run the job again",
    "frames": "set fails_on_data_loss=False to continue without them",
}
# How to begin a batch later, and how to read files instead, in the same words.
LATER: Final[Mapping[str, str]] = {
    "spark": "begin later (startingSeq, startingTime)",
    "pipeline": "begin later (start, start_seq)",
    "frames": "begin later (first_seq, start_time)",
}
FILES: Final[Mapping[str, str]] = {
    "spark": "read its blocks (storeDir)",
    "pipeline": "read its blocks (store)",
    "sql": "read its blocks (--store)",
    "frames": "read its blocks (store)",
}


class _Listening(threading.local):
    """Where the losses go that are reported in this thread, beside the log."""

    texts: list[str] | None = None


_LISTENING: Final = _Listening()


@contextmanager
def losses_into(texts: list[str]) -> Iterator[None]:
    """Add to `texts` what reads in this thread report and do not fail for."""
    before, _LISTENING.texts = _LISTENING.texts, texts
    try:
        yield
    finally:
        _LISTENING.texts = before


def _report(text: str) -> None:
    logger.warning("%s", text)
    if _LISTENING.texts is not None:
        _LISTENING.texts.append(text)


@dataclass(frozen=True, slots=True)
class MissingMessages:
    """Messages that were planned and have not been found, with bounds of their sequences."""

    count: int = 0
    first_seq: int = 0
    last_seq: int = 0
    is_certain: bool = True

    def __add__(self, other: MissingMessages) -> MissingMessages:
        if not self.count or not other.count:
            return self if self.count else other
        return MissingMessages(
            self.count + other.count,
            min(self.first_seq, other.first_seq),
            max(self.last_seq, other.last_seq),
            self.is_certain and other.is_certain,
        )

    def __str__(self) -> str:
        doubt = "were removed" if self.is_certain else "may have been removed"
        return (
            f"{self.count} messages among the sequences {self.first_seq} to {self.last_seq} {doubt}"
        )


@dataclass(frozen=True, slots=True)
class LossRule:
    """The rule of one read of a stream for messages that are gone; it travels with its tasks.

    `forgives_head`: what is removed at the head is no loss. `is_replaced`: the stream removes
    messages when newer ones come. `is_proved`: whether it matters at all which ones are missing.
    `avoidance`: what would have kept limits from being faster than the read, for messages.
    """

    stream: str
    fails: bool
    forgives_head: bool
    is_replaced: bool
    is_proved: bool
    used_by: str
    avoidance: tuple[str, ...] = ()

    def judge(self, at_head: MissingMessages, elsewhere: MissingMessages) -> None:
        """Decide about what a task has not found, below the first message of the stream and not."""
        if self.is_replaced:
            if missing := _some(at_head + elsewhere):
                _report(
                    f"stream {self.stream}: {missing} while it was read, perhaps because newer ones"
                    " of their subjects came; this batch does not contain those"
                )
            return
        if self.forgives_head:
            if at_head.count:
                _report(
                    f"stream {self.stream}: {at_head} at its head after the read was planned; the"
                    " read begins behind them"
                )
        else:
            elsewhere = at_head + elsewhere
        if elsewhere.count:
            self.lost(
                f"stream {self.stream}: {elsewhere} after the read was planned and before they were"
                " read",
                self.avoidance,
            )

    def lost(self, what: str, avoidance: tuple[str, ...] = ()) -> None:
        """Report a loss: DataLossError, or a warning if the read is to continue."""
        if self.fails:
            advice = ADVICE[self.used_by]
            if avoidance:
                advice = f"{', '.join(avoidance)}, or {advice}"
            raise DataLossError(f"{what}; {advice}")
        _report(what)

    def check_begin(self, after_seq: int, first_seq: int) -> bool:
        """Whether a stream still begins where a query that has read up to `after_seq` goes on.

        If it does not, all sequences between count as lost: which of them were gaps is unknown.
        """
        if after_seq + 1 >= first_seq or self.is_replaced:
            return True
        self.lost(
            f"stream {self.stream}: sequences {after_seq + 1} to {first_seq - 1} were removed"
            " before they were read",
            self.avoidance,
        )
        return False


def _some(missing: MissingMessages) -> MissingMessages | None:
    return missing if missing.count else None


def rule_of(
    options: SourceOptions, stream: str, *, replaces: bool, from_files: bool = False
) -> LossRule:
    """The rule for one stream; `replaces`: it keeps only the last messages of each subject.

    The latest values of a bucket are read through a server until nothing is left, which is enough.
    From files nothing is read that came after planning, so that all that was planned is needed.
    """
    start = options.start_of(stream)
    needs_all = from_files and options.is_table and not options.history
    is_replaced = (replaces or options.is_table) and (not needs_all or options.is_followed)
    is_any_enough = is_replaced and (options.is_followed or (options.is_table and not from_files))
    is_pipeline = options.used_by == "pipeline"
    later = "" if options.is_followed else LATER.get(options.used_by, "")
    files = "" if from_files else FILES.get(options.used_by, "")
    return LossRule(
        stream,
        fails=options.fails_on_data_loss is not False,
        forgives_head=options.fails_on_data_loss is None
        and not options.is_followed
        and not options.is_table
        and not start.seq
        and start.time_ns is None,
        is_replaced=is_replaced,
        is_proved=not options.is_sample and not is_any_enough,
        # There, a bucket has nothing to set.
        used_by="pipeline bucket" if options.bucket and is_pipeline else options.used_by,
        avoidance=tuple(filter(None, ("raise the limits of the stream", later, files))),
    )


def promised_from(
    options: SourceOptions, stream: str, seq_at_time: Callable[[str, int], int]
) -> int:
    """The sequence from which a batch promises messages: what is older than its start is not."""
    start = options.start_of(stream)
    if options.is_followed or start.time_ns is None:
        return 1
    return seq_at_time(stream, start.time_ns)
