"""Compares what is declared with what exists, and lists the changes.

Owns the comparison and the order of changes. It never contacts a server, and compares objects in
the form in which `shapes.py` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.cli.declared.declaration_files import Declaration, DeclaredThing, Thing


class Action(StrEnum):
    """The actions on things, in the order in which a plan carries them out."""

    REMOVE = "remove"
    CHANGE = "change"
    ADD = "add"


@dataclass(frozen=True, slots=True)
class LiveThing:
    """A thing as it is on the server; `note` says how much would be lost with it. `is_made`: a
    template has made it, so it comes and goes without a file.
    """

    written: dict[str, Any]
    note: str = ""
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One step; `before` and `after` are what a file says of it, empty if it is not there."""

    action: Action
    thing: Thing
    before: dict[str, Any]
    after: dict[str, Any]
    declared: DeclaredThing | None = None
    note: str = ""

    @property
    def members(self) -> list[str]:
        """The members that differ, in the order of the file and then of the server."""
        names = [*self.after, *(name for name in self.before if name not in self.after)]
        return [name for name in names if self.before.get(name) != self.after.get(name)]


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes to make, the things already as declared, and those that no file mentions."""

    changes: list[PlannedChange]
    same: list[Thing]
    unmentioned: list[Thing]

    @property
    def removes(self) -> bool:
        """Whether anything would be lost."""
        return any(change.action is Action.REMOVE for change in self.changes)


def make_plan(declaration: Declaration, found: Mapping[Thing, LiveThing], *, prune: bool) -> Plan:
    """The plan that turns `found` into what is declared. Only `prune` removes anything, and only
    from a section, or from the consumers of a stream, that the files list completely.
    """
    changes, same = [], []
    for thing, declared in declaration.things.items():
        before = found.get(thing)
        if before is None:
            changes.append(PlannedChange(Action.ADD, thing, {}, declared.written, declared))
        elif before.written != declared.written:
            changes.append(
                PlannedChange(Action.CHANGE, thing, before.written, declared.written, declared)
            )
        else:
            same.append(thing)
    unmentioned = [
        thing
        for thing in sorted(found)
        if thing not in declaration.things
        and not found[thing].is_made
        and _is_managed(declaration, thing)
    ]
    if prune:
        streams = {thing for thing in unmentioned if not thing.consumer}
        changes += [
            PlannedChange(Action.REMOVE, thing, found[thing].written, {}, note=found[thing].note)
            for thing in unmentioned
            if not thing.consumer or _owner(thing) not in streams
        ]
        unmentioned = []
    order = list(Action)
    changes.sort(key=lambda change: order.index(change.action))
    return Plan(changes, same, unmentioned)


def _owner(thing: Thing) -> Thing:
    return Thing(thing.section, thing.name)


def _is_managed(declaration: Declaration, thing: Thing) -> bool:
    """Whether the files list everything of this kind."""
    if thing.consumer:
        return _owner(thing) in declaration.complete
    return thing.section in declaration.complete and not thing.name.startswith("$")
