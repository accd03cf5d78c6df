"""The subject mappings of an account, applied to the messages that clients publish.

Owns the choice between weighted destinations, and a cache of mapped subjects. The syntax and
application of one mapping are in `mapping`. It never routes, and never maps a subject twice.

    orders.*   ->  80 % orders.v1.$1, 20 % orders.v2.$1
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, count
from typing import Final

import msgspec
from msgspec.structs import replace

from tradewind.route.mapping import (
    MappingError,
    RandomBelow,
    SubjectMapping,
    check_mapping,
    compile_mapping,
)
from tradewind.route.subject_trie import charge_rules

WEIGHT_MAX: Final = 100
SUBJECTS_REMEMBERED_MAX: Final = 1024
# The result for a message that none of the weights covers: it has no receivers.
NOWHERE: Final = b""


class Destination(msgspec.Struct, frozen=True):
    """One destination of a source, and the percentage of messages that go there.

    With a `cluster`, the destination is only for servers of that cluster.
    """

    subject: str
    weight: int = WEIGHT_MAX
    cluster: str = ""


class MappingRule(msgspec.Struct, frozen=True):
    """A source, which may have wildcards, and its destinations."""

    source: str
    destinations: tuple[Destination, ...]


# A result, or the mapping that computes it for each message, and the number below which a random
# number chooses it.
_Choice = tuple[int, bytes | SubjectMapping]


class _Rule:
    """A compiled rule: `shares` has the destinations with their weights added up."""

    __slots__ = ("matcher", "shares", "shown", "source")

    def __init__(self, rule: MappingRule, random_below: RandomBelow) -> None:
        self.source = rule.source
        self.matcher = compile_mapping(rule.source, "", random_below=random_below)
        self.shares: list[tuple[int, SubjectMapping]] = []
        clusters = dict.fromkeys(("", *(one.cluster for one in rule.destinations)))
        self.shown = tuple(one for cluster in clusters for one in _added_up(rule, cluster))
        for one in _added_up(rule, ""):
            mapping = compile_mapping(rule.source, one.subject, random_below=random_below)
            self.shares.append((one.weight, mapping))

    def choices(self, subject: bytes) -> tuple[_Choice, ...]:
        """The possible results for a subject that matches."""
        return tuple(
            (until, mapping if mapping.is_random else mapping.apply_bytes(subject) or NOWHERE)
            for until, mapping in self.shares
        )


class AccountMappings:
    """All mappings of an account, in the order of the configuration; the first one that matches
    applies.
    """

    def __init__(self, rules: Iterable[MappingRule], *, random_below: RandomBelow) -> None:
        self._rules = [_Rule(rule, random_below) for rule in rules]
        self._random_below = random_below
        # By subject: the result if there is only one, else all of them.
        self._seen: dict[bytes, bytes | tuple[_Choice, ...]] = {}

    def map(self, subject: bytes) -> bytes:
        """The subject that a message goes to: unchanged if no mapping matches, or NOWHERE."""
        found = self._seen.get(subject)
        if found is None:
            found = self._look_up(subject)
        if isinstance(found, bytes):
            return found
        number = self._random_below(WEIGHT_MAX)
        for until, result in found:
            if number < until:
                if isinstance(result, bytes):
                    return result
                return result.apply_bytes(subject) or NOWHERE
        return NOWHERE

    def shown(self) -> dict[str, tuple[Destination, ...]]:
        """The destinations by source, with their weights added up, as monitoring shows them."""
        return {rule.source: rule.shown for rule in self._rules}

    def _look_up(self, subject: bytes) -> bytes | tuple[_Choice, ...]:
        found: bytes | tuple[_Choice, ...] = subject
        charge_rules(len(self._rules), len(subject))
        for rule in self._rules:
            if rule.matcher.apply_bytes(subject) is not None:
                found = choices = rule.choices(subject)
                if choices and choices[0][0] == WEIGHT_MAX and isinstance(choices[0][1], bytes):
                    found = choices[0][1]
                break
        if len(self._seen) >= SUBJECTS_REMEMBERED_MAX:
            self._seen.clear()
        self._seen[subject] = found
        return found


def check_rule(rule: MappingRule) -> None:
    """MappingError unless the rule is valid."""
    by_cluster: dict[str, list[Destination]] = {}
    for one in rule.destinations:
        check_mapping(rule.source, one.subject)
        by_cluster.setdefault(one.cluster, []).append(one)
    for destinations in by_cluster.values():
        seen: set[str] = set()
        for one in destinations:
            if one.subject in seen:
                raise MappingError(f'duplicate entry for "{one.subject}"')
            seen.add(one.subject)
        if sum(one.weight for one in destinations) > WEIGHT_MAX:
            raise MappingError("total weight needs to be <= 100")


def _added_up(rule: MappingRule, cluster: str) -> list[Destination]:
    """The destinations for servers of a cluster, or of none, by weight; each has the sum so far.

    The rest of a hundred percent stays on its subject, unless the source is among the destinations.
    """
    found = [one for one in rule.destinations if one.cluster == cluster]
    rest = WEIGHT_MAX - sum(one.weight for one in found)
    if rest > 0 and all(one.subject != rule.source for one in found):
        found.append(Destination(_itself(rule.source), rest, cluster))
    found.sort(key=lambda one: one.weight)
    sums = accumulate(one.weight for one in found)
    return [replace(one, weight=total) for one, total in zip(found, sums, strict=True)]


def _itself(source: str) -> str:
    """A destination that returns the matched subject."""
    numbers = count(1)
    return ".".join(f"${next(numbers)}" if part == "*" else part for part in source.split("."))
