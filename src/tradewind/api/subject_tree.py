"""An index of subjects and patterns by token, to find those that overlap or cover a given one.

Owns the tree. The cost of a lookup depends on the tokens and wildcards of the subject, hardly on
the number of entries; comparing all pairs of a request with thousands took seconds. Where very many
wildcards make it depend on both, a lookup ends with an error: what a request may cost is in
proportion to its tokens and to the size of the tree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from tradewind.api.errors import STREAM_INVALID_CONFIG

WILDCARD: Final = "*"
FULL_WILDCARD: Final = ">"

STEPS_MIN: Final = 20_000
STEPS_PER_TOKEN: Final = 20
STEPS_PER_NODE: Final = 2

_Owner = TypeVar("_Owner", bound=Hashable)


class Steps:
    """How many nodes the lookups for one request may still visit."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> None:
        """Count one; ApiError if there is none left."""
        self.left -= 1
        if self.left < 0:
            raise STREAM_INVALID_CONFIG(
                err="too many wildcards in too many subjects to compare them: use fewer of either"
            )


class _Node(Generic[_Owner]):
    __slots__ = ("children", "owners")

    def __init__(self) -> None:
        self.children: dict[str, _Node[_Owner]] = {}
        self.owners: set[_Owner] = set()


class SubjectTree(Generic[_Owner]):
    """Subjects, which may be patterns, by those who have them."""

    def __init__(self) -> None:
        self._root: _Node[_Owner] = _Node()
        self._node_count = 0

    def steps_for(self, subjects: Iterable[str]) -> Steps:
        """What looking up these subjects, all of one request, may cost."""
        tokens = sum(subject.count(".") + 1 for subject in subjects)
        return Steps(STEPS_MIN + STEPS_PER_TOKEN * tokens + STEPS_PER_NODE * self._node_count)

    def add(self, owner: _Owner, subjects: Iterable[str]) -> None:
        """`owner` has these too from now on."""
        for subject in subjects:
            node = self._root
            for token in _tokens(subject):
                child = node.children.get(token)
                if child is None:
                    child = node.children[token] = _Node()
                    self._node_count += 1
                node = child
            node.owners.add(owner)

    def remove(self, owner: _Owner, subjects: Iterable[str]) -> None:
        """`owner` has these no more; those that it has not are passed over."""
        for subject in subjects:
            path: list[tuple[_Node[_Owner], str]] = []
            node: _Node[_Owner] | None = self._root
            for token in _tokens(subject):
                assert node is not None
                path.append((node, token))
                node = node.children.get(token)
                if node is None:
                    break
            if node is None:
                continue
            node.owners.discard(owner)
            while path and not node.owners and not node.children:
                node, token = path.pop()
                del node.children[token]
                self._node_count -= 1

    def colliding(self, subject: str, steps: Steps | None = None) -> Iterator[_Owner]:
        """Whoever has a subject that shares a literal one with this; some more than once."""
        return _colliding(self._root, _tokens(subject), steps or self.steps_for([subject]))

    def covering(self, subject: str, steps: Steps | None = None) -> Iterator[_Owner]:
        """Whoever has a subject that matches all that this one matches."""
        return _covering(self._root, _tokens(subject), steps or self.steps_for([subject]))

    def others(self, owner: _Owner, subjects: Sequence[str]) -> bool:
        """Whether somebody else has a subject that shares a literal one with any of these."""
        steps = self.steps_for(subjects)
        return any(
            found != owner for subject in subjects for found in self.colliding(subject, steps)
        )


def numbered(subjects: Sequence[str]) -> SubjectTree[int]:
    """The places of subjects in a list."""
    tree: SubjectTree[int] = SubjectTree()
    for number, subject in enumerate(subjects):
        tree.add(number, [subject])
    return tree


def has_subset(subjects: Sequence[str]) -> bool:
    """Whether one of them matches all that another one matches."""
    tree = numbered(subjects)
    steps = tree.steps_for(subjects)
    return any(
        found != number
        for number, subject in enumerate(subjects)
        for found in tree.covering(subject, steps)
    )


def _tokens(subject: str) -> list[str]:
    """What follows a '>' never matters; only subjects that are not valid have any."""
    tokens = subject.split(".")
    if FULL_WILDCARD in tokens:
        return tokens[: tokens.index(FULL_WILDCARD) + 1]
    return tokens


# Both walks below keep their own stack: whoever sends a subject decides how many tokens it has.


def _colliding(root: _Node[_Owner], tokens: list[str], steps: Steps) -> Iterator[_Owner]:
    """The owners below a node that collide with a subject."""
    waiting = [(root, 0)]
    while waiting:
        steps.take()
        node, index = waiting.pop()
        if index == len(tokens):
            yield from node.owners
            continue
        token = tokens[index]
        children = node.children
        if token == FULL_WILDCARD:
            for child in children.values():
                yield from _all_owners(child)
            continue
        index += 1
        if (full := children.get(FULL_WILDCARD)) is not None:
            yield from full.owners
        if token == WILDCARD:
            waiting += [(one, index) for name, one in children.items() if name != FULL_WILDCARD]
            continue
        if (star := children.get(WILDCARD)) is not None:
            waiting.append((star, index))
        if (same := children.get(token)) is not None:
            waiting.append((same, index))


def _covering(root: _Node[_Owner], tokens: list[str], steps: Steps) -> Iterator[_Owner]:
    """The owners below a node that cover a subject."""
    waiting = [(root, 0)]
    while waiting:
        steps.take()
        node, index = waiting.pop()
        if index == len(tokens):
            yield from node.owners
            continue
        children = node.children
        if (full := children.get(FULL_WILDCARD)) is not None:
            yield from full.owners
        token = tokens[index]
        if token == FULL_WILDCARD:
            continue
        index += 1
        if (star := children.get(WILDCARD)) is not None:
            waiting.append((star, index))
        if token != WILDCARD and (same := children.get(token)) is not None:
            waiting.append((same, index))


def _all_owners(node: _Node[_Owner]) -> Iterator[_Owner]:
    nodes = [node]
    while nodes:
        current = nodes.pop()
        yield from current.owners
        nodes.extend(current.children.values())
