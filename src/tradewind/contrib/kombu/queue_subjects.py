"""Subjects of queues and exchanges: names of AMQP as tokens, bindings as filters of a consumer.

Owns the mapping alone and does no I/O:

    STREAM.q.PRIORITY.QUEUE             published to a queue by its name (the default exchange)
    STREAM.x.EXCHANGE.PRIORITY.WORDS    published to an exchange; the words of the routing key
    STREAM.delay.ID                     published later, by a schedule

A character that a token may not contain becomes `=` and two hexadecimal digits per byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tradewind.client.errors import OptionsError
from tradewind.subjects import collide, is_subset

DIRECT: Final = "direct"
TOPIC: Final = "topic"
FANOUT: Final = "fanout"
PRIORITY_MAX: Final = 9
NAME_BYTES_MAX: Final = 240  # names of consumers have at most 255, some of them for a priority
WORDS_MAX: Final = 64
BINDINGS_MAX: Final = 256
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_EMPTY: Final = "="


class QueueBinding(msgspec.Struct, frozen=True):
    """A rule which messages of an exchange a queue receives; `kind` is the type of the exchange."""

    exchange: str
    kind: str
    routing_key: str


def to_token(name: str) -> str:
    """A name as one token of a subject; different names give different tokens."""
    if not name:
        return _EMPTY
    return "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in name.encode())


def queue_token(name: str) -> str:
    """The token of a queue or exchange; OptionsError if the name is too long."""
    token = to_token(name)
    if len(token) > NAME_BYTES_MAX:
        raise OptionsError(
            f"queue or exchange {name[:40]!r}...: at most {NAME_BYTES_MAX} characters after "
            f"escaping, not {len(token)}"
        )
    return token


def consumer_name(queue: str, steps: Sequence[int], step: int) -> str:
    """The consumer of a queue, or of the priorities from a step on."""
    token = queue_token(queue)
    return token if step == steps[0] else f"{token}=p{step}"


def queue_subject(stream: str, queue: str, priority: int | str) -> str:
    """The subject of messages to a queue by its name."""
    return f"{stream}.q.{priority}.{queue_token(queue)}"


def exchange_subject(stream: str, exchange: str, routing_key: str, priority: int) -> str:
    """The subject of messages to an exchange."""
    words = ".".join(to_token(word) for word in _words(routing_key))
    return f"{stream}.x.{queue_token(exchange)}.{priority}.{words}"


def queue_filters(
    stream: str, queue: str, bindings: Sequence[QueueBinding], priorities: Iterable[int | str]
) -> list[str]:
    """Filters for one consumer of a queue. They do not overlap, which servers refuse.

    Bindings that overlap are widened to a common pattern; `matches` then decides.
    """
    if len(bindings) > BINDINGS_MAX:
        raise OptionsError(f"queue {queue!r}: at most {BINDINGS_MAX} bindings, not {len(bindings)}")
    filters: list[str] = []
    for priority in priorities:
        filters.append(queue_subject(stream, queue, priority))
        by_exchange: dict[str, list[str]] = {}
        for binding in bindings:
            by_exchange.setdefault(binding.exchange, []).extend(_tails(binding))
        for exchange, tails in by_exchange.items():
            prefix = f"{stream}.x.{queue_token(exchange)}.{priority}"
            filters += [f"{prefix}.{tail}" for tail in disjoint(tails)]
    return filters


def matches(bindings: Iterable[QueueBinding], exchange: str, routing_key: str) -> bool:
    """Whether a queue with these bindings receives a message; False also for other exchanges."""
    return any(
        binding.exchange == exchange and _matches_key(binding, routing_key) for binding in bindings
    )


def disjoint(patterns: Iterable[str]) -> list[str]:
    """Patterns that match all that these match, of which no two match the same subject."""
    found: list[str] = []
    waiting = list(dict.fromkeys(patterns))
    while waiting:
        pattern = waiting.pop()
        for other in found:
            if is_subset(pattern, other):
                break
            if collide(pattern, other):
                found.remove(other)
                waiting.append(_join(pattern, other))
                break
        else:
            found.append(pattern)
    return sorted(found)


def _join(first: str, second: str) -> str:
    """The narrowest pattern found that covers both of two that collide."""
    ours, theirs = first.split("."), second.split(".")
    joined: list[str] = []
    for one, other in zip(ours, theirs, strict=False):
        if ">" in (one, other):
            break
        joined.append(one if one == other else "*")
    else:
        if len(ours) == len(theirs):
            return ".".join(joined)
    return ".".join([*joined, ">"])


def _words(routing_key: str) -> list[str]:
    words = routing_key.split(".")
    if len(words) > WORDS_MAX:
        raise OptionsError(
            f"routing key {routing_key[:40]!r}...: at most {WORDS_MAX} words, not {len(words)}"
        )
    return words


def _tails(binding: QueueBinding) -> list[str]:
    """The patterns of routing keys as the last tokens of a subject."""
    if binding.kind == FANOUT:
        return [">"]
    words = _words(binding.routing_key)
    if binding.kind == DIRECT:
        return [".".join(to_token(word) for word in words)]
    tokens: list[str] = []
    for index, word in enumerate(words):
        if word == "#":
            rest = words[index + 1 :]
            if all(each == "#" for each in rest) and tokens:
                return [".".join(tokens), ".".join([*tokens, ">"])]
            # Words may follow: the server sends more, and `matches` decides.
            return [".".join([*tokens, ">"])]
        tokens.append("*" if word == "*" else to_token(word))
    return [".".join(tokens)]


def _matches_key(binding: QueueBinding, routing_key: str) -> bool:
    if binding.kind == FANOUT:
        return True
    if binding.kind == DIRECT:
        return binding.routing_key == routing_key
    return _matches_topic(binding.routing_key.split("."), routing_key.split("."))


def _matches_topic(pattern: list[str], words: list[str]) -> bool:
    """Whether words match a pattern with `*` (one word) and `#` (any number); in their product."""
    reached = [True] + [False] * len(words)  # reached[n]: the pattern so far matches n words
    for part in pattern:
        if part == "#":
            for index in range(len(words)):
                reached[index + 1] = reached[index + 1] or reached[index]
            continue
        reached = [False] + [
            reached[index] and part in ("*", word) for index, word in enumerate(words)
        ]
    return reached[-1]
