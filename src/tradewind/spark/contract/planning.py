"""Divides a read into tasks.

Owns the sizes: pure functions over block ranges, without files or Spark. A task costs Spark about a
tenth of a second of processor time, so there are few large ones, but no fewer than cores while
there is work for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tradewind.spark.files.stream_contents import TIME_SLACK_NS, BlockRange

TASK_BYTES: Final = 128 * 1024 * 1024
# Below this a task does less than it costs.
TASK_BYTES_MIN: Final = 8 * 1024 * 1024
# A server sends what it was asked for, whether there is memory for it or not.
BYTES_AHEAD: Final = 32 * 1024 * 1024
MESSAGES_AHEAD_MAX: Final = 8192
MESSAGES_AHEAD_MIN: Final = 8

# A part of a read: blocks with the lowest and the highest sequence that is wanted of each.
Part = tuple[tuple[int, int, int], ...]


def part_count(total_bytes: int, cores: int, partitions_min: int) -> int:
    """Into how many parts this many bytes are to be divided."""
    by_size = -(-total_bytes // TASK_BYTES)
    by_cores = min(cores, -(-total_bytes // TASK_BYTES_MIN))
    return max(by_size, by_cores, partitions_min, 1)


def messages_ahead(total_bytes: int, messages: int) -> int:
    """How many messages of a stream to ask for at a time, if they are of the average size."""
    average = max(total_bytes // max(messages, 1), 1)
    return min(max(BYTES_AHEAD // average, MESSAGES_AHEAD_MIN), MESSAGES_AHEAD_MAX)


def choose_blocks(
    blocks: Sequence[BlockRange], first_seq: int, last_seq: int, first_ns: int, last_ns: int
) -> list[BlockRange]:
    """The blocks that can hold messages in these bounds, with their sequences cut to them."""
    chosen = []
    for block in blocks:
        low, high = max(block.first_seq, first_seq), min(block.last_seq, last_seq)
        if (
            low <= high
            and block.first_time_ns - TIME_SLACK_NS <= last_ns
            and block.last_time_ns + TIME_SLACK_NS >= first_ns
        ):
            chosen.append(
                BlockRange(
                    block.number, block.size, low, high, block.first_time_ns, block.last_time_ns
                )
            )
    return chosen


def divide(blocks: Sequence[BlockRange], parts: int) -> list[Part]:
    """At most this many parts of about the same number of bytes, in order of sequence.

    A block is cut by sequence only where there are fewer blocks than parts.
    """
    if not blocks:
        return []
    if parts > len(blocks):
        return _cut(blocks, parts)
    total = sum(block.size for block in blocks)
    result: list[Part] = []
    held: list[tuple[int, int, int]] = []
    done = 0
    for index, block in enumerate(blocks):
        held.append((block.number, block.first_seq, block.last_seq))
        done += block.size
        left = len(blocks) - index - 1
        missing = parts - len(result) - 1
        if done * parts >= total * (len(result) + 1) or left <= missing:
            result.append(tuple(held))
            held = []
    if held:
        result.append(tuple(held))
    return result


def _cut(blocks: Sequence[BlockRange], parts: int) -> list[Part]:
    total = sum(block.size for block in blocks)
    result: list[Part] = []
    for block in blocks:
        span = block.last_seq - block.first_seq + 1
        pieces = max(min(round(parts * block.size / total), span), 1)
        first = block.first_seq
        for piece in range(pieces):
            last = block.first_seq + span * (piece + 1) // pieces - 1
            result.append(((block.number, first, last),))
            first = last + 1
    return result


def ranges(first_seq: int, last_seq: int, parts: int) -> list[tuple[int, int]]:
    """At most this many ranges of sequences, of about the same length."""
    span = last_seq - first_seq + 1
    parts = min(parts, span)
    ends = [first_seq + span * (part + 1) // parts - 1 for part in range(parts)]
    first_seqs = [first_seq, *(end + 1 for end in ends[:-1])]
    return list(zip(first_seqs, ends, strict=True))
