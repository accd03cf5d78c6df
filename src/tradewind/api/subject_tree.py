"""An index of subjects and patterns by token, to find those that overlap or cover a given one.

Owns the tree, and the bound on the work of looking something up in it: patterns can be chosen such
that each lookup follows most of the others, which only comparing all pairs would decide. Comparing
all pairs of a request with thousands took seconds. Subjects may have any number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from tradewind.api.own_errors import SUBJECTS_TOO_INTRICATE

WILDCARD: Final = "*"
FULL_WILDCARD: Final = ">"
# How many nodes of a tree a request may visit: some for each token of its subjects (an ordinary
# subject needs two), and a few times the whole tree for its wildcards.
VISITS_PER_TOKEN: Final = 16
VISITS_PER_NODE: Final = 8
VISITS_MIN: Final = 100_000

_Owner = TypeVar("_Owner", bound=Hashable)
_NO_CHILDREN: Final[dict[str, Any]] = {}
_NO_OWNERS: Final[frozenset[Any]] = frozenset()


class Effort:
    """The number of node visits that one request has left; `refusal` makes the error if they are
    used up.
    """

    __slots__ = ("_left", "_refusal")

    def __init__(
        self, visits: int, refusal: Callable[[], Exception] = SUBJECTS_TOO_INTRICATE
    ) -> None:
        self._left = visits
        self._refusal = refusal

    def spend(self, visits: int = 1) -> None:
        """Count visits; an error if there were too many."""
        self._left -= visits
        if self._left < 0:
            raise self._refusal()


class _Node(Generic[_Owner]):
    __slots__ = ("children", "owners")

    def __init__(self) -> None:
        # Empty ones are shared: there may be very many nodes, and most have one of the two.
        self.children: dict[str, _Node[_Owner]] = _NO_CHILDREN
        self.owners: set[_Owner] | frozenset[_Owner] = _NO_OWNERS


class SubjectTree(Generic[_Owner]):
    """Subjects, which may be patterns, by their owners.

    A lookup spends the effort that its request has left, which `effort` returns.
    """

    def __init__(self) -> None:
        self._root: _Node[_Owner] = _Node()
        # Nodes of the tree; no lookup visits one twice.
        self.size = 1

    def effort(self, subjects: Iterable[str]) -> Effort:
        """The effort for looking up all these subjects: linear in them and in the tree."""
        token_count = sum(subject.count(".") + 1 for subject in subjects)
        return Effort(VISITS_MIN + VISITS_PER_TOKEN * token_count + VISITS_PER_NODE * self.size)

    def add(self, owner: _Owner, subjects: Iterable[str]) -> None:
        """Add subjects of an owner."""
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
        """Remove subjects of an owner; those that it does not have are ignored."""
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

    def colliding(self, subject: str, effort: Effort) -> Iterator[_Owner]:
        """The owners of subjects that share a literal one with this; some more than once."""
        tokens = _tokens(subject)
        nodes = [(self._root, 0)]
        while nodes:
            effort.spend()
            node, index = nodes.pop()
            if index == len(tokens):
                yield from node.owners
                continue
            children, token = node.children, tokens[index]
            if token == FULL_WILDCARD:
                yield from _all_owners(children.values(), effort)
                continue
            if (full := children.get(FULL_WILDCARD)) is not None:
                yield from full.owners
            if token == WILDCARD:
                for name, child in children.items():
                    if name != FULL_WILDCARD:
                        nodes.append((child, index + 1))
                continue
            nodes += [(children[name], index + 1) for name in (WILDCARD, token) if name in children]

    def covering(self, subject: str, effort: Effort) -> Iterator[_Owner]:
        """The owners of subjects that match all that this one matches."""
        tokens = _tokens(subject)
        nodes = [(self._root, 0)]
        while nodes:
            effort.spend()
            node, index = nodes.pop()
            if index == len(tokens):
                yield from node.owners
                continue
            if (full := node.children.get(FULL_WILDCARD)) is not None:
                yield from full.owners
            token = tokens[index]
            if token == FULL_WILDCARD:
                continue
            nodes += [
                (node.children[name], index + 1)
                for name in {token, WILDCARD}
                if name in node.children
            ]

    def others(self, owner: _Owner, subject: str, effort: Effort) -> bool:
        """Whether another owner has a subject that shares a literal one with this."""
        return any(found != owner for found in self.colliding(subject, effort))


def numbered(subjects: Sequence[str]) -> SubjectTree[int]:
    """A tree of the indexes of subjects in a list."""
    tree: SubjectTree[int] = SubjectTree()
    for number, subject in enumerate(subjects):
        tree.add(number, [subject])
    return tree


def has_subset(subjects: Sequence[str]) -> bool:
    """Whether one of the subjects matches all that another one matches."""
    tree = numbered(subjects)
    effort = tree.effort(subjects)
    return any(
        found != number
        for number, subject in enumerate(subjects)
        for found in tree.covering(subject, effort)
    )


def _tokens(subject: str) -> list[str]:
    """The tokens of a subject up to a '>'; only invalid subjects have more."""
    tokens = subject.split(".")
    if FULL_WILDCARD in tokens:
        return tokens[: tokens.index(FULL_WILDCARD) + 1]
    return tokens


def _all_owners(nodes: Iterable[_Node[_Owner]], effort: Effort) -> Iterator[_Owner]:
    left = list(nodes)
    while left:
        effort.spend()
        node = left.pop()
        yield from node.owners
        left.extend(node.children.values())
