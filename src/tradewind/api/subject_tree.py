"""An index of subjects and patterns by token, to find those that overlap or cover a given one.

Owns the tree. The cost of a lookup depends on the tokens and wildcards of the subject, and on those
of the entries that begin like it, but at most on `size`. Comparing all pairs of a request with
thousands took seconds. Subjects may have any number of tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

WILDCARD: Final = "*"
FULL_WILDCARD: Final = ">"

_Owner = TypeVar("_Owner", bound=Hashable)
_NO_CHILDREN: Final[dict[str, Any]] = {}
_NO_OWNERS: Final[frozenset[Any]] = frozenset()


class _Node(Generic[_Owner]):
    __slots__ = ("children", "owners")

    def __init__(self) -> None:
        # Empty ones are shared: there may be very many nodes, and most have one of the two.
        self.children: dict[str, _Node[_Owner]] = _NO_CHILDREN
        self.owners: set[_Owner] | frozenset[_Owner] = _NO_OWNERS


class SubjectTree(Generic[_Owner]):
    """Subjects, which may be patterns, by those who have them."""

    def __init__(self) -> None:
        self._root: _Node[_Owner] = _Node()
        # Nodes of the tree; no lookup visits one twice.
        self.size = 1

    def add(self, owner: _Owner, subjects: Iterable[str]) -> None:
        """`owner` has these too from now on."""
        for subject in subjects:
            node = self._root
            for token in _tokens(subject):
                child = node.children.get(token)
                if child is None:
                    child = _Node()
                    if not node.children:
                        node.children = {}
                    node.children[token] = child
                    self.size += 1
                node = child
            if not node.owners:
                node.owners = set()
            assert isinstance(node.owners, set)
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
            if isinstance(node.owners, set):
                node.owners.discard(owner)
            while path and not node.owners and not node.children:
                node, token = path.pop()
                del node.children[token]
                self.size -= 1

    def colliding(self, subject: str) -> Iterator[_Owner]:
        """Whoever has a subject that shares a literal one with this; some more than once."""
        return _colliding(self._root, _tokens(subject))

    def covering(self, subject: str) -> Iterator[_Owner]:
        """Whoever has a subject that matches all that this one matches."""
        return _covering(self._root, _tokens(subject))

    def others(self, owner: _Owner, subject: str) -> bool:
        """Whether somebody else has a subject that shares a literal one with this."""
        return any(found != owner for found in self.colliding(subject))


def numbered(subjects: Sequence[str]) -> SubjectTree[int]:
    """The places of subjects in a list."""
    tree: SubjectTree[int] = SubjectTree()
    for number, subject in enumerate(subjects):
        tree.add(number, [subject])
    return tree


def has_subset(subjects: Sequence[str]) -> bool:
    """Whether one of them matches all that another one matches."""
    tree = numbered(subjects)
    return any(
        found != number
        for number, subject in enumerate(subjects)
        for found in tree.covering(subject)
    )


def _tokens(subject: str) -> list[str]:
    """What follows a '>' never matters; only subjects that are not valid have any."""
    tokens = subject.split(".")
    if FULL_WILDCARD in tokens:
        return tokens[: tokens.index(FULL_WILDCARD) + 1]
    return tokens


def _colliding(root: _Node[_Owner], tokens: list[str]) -> Iterator[_Owner]:
    """The owners below a node that collide with a subject."""
    waiting = [(root, 0)]
    while waiting:
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
        if (full := children.get(FULL_WILDCARD)) is not None:
            yield from full.owners
        names = children if token == WILDCARD else (WILDCARD, token)
        waiting.extend(
            (found, index + 1)
            for name in names
            if name != FULL_WILDCARD and (found := children.get(name)) is not None
        )


def _covering(root: _Node[_Owner], tokens: list[str]) -> Iterator[_Owner]:
    """The owners below a node that cover a subject."""
    waiting = [(root, 0)]
    while waiting:
        node, index = waiting.pop()
        if index == len(tokens):
            yield from node.owners
            continue
        token = tokens[index]
        children = node.children
        if (full := children.get(FULL_WILDCARD)) is not None:
            yield from full.owners
        if token == FULL_WILDCARD:
            continue
        waiting.extend(
            (found, index + 1)
            for name in {token, WILDCARD}
            if (found := children.get(name)) is not None
        )


def _all_owners(node: _Node[_Owner]) -> Iterator[_Owner]:
    nodes = [node]
    while nodes:
        current = nodes.pop()
        yield from current.owners
        nodes.extend(current.children.values())
