"""Which stream takes which subjects of an account, so that no two streams take the same.

Owns a tree of subject tokens. Asking it costs as much as the subject has tokens and wildcards,
however many streams there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

WILDCARD: Final = "*"
FULL_WILDCARD: Final = ">"


class _Node:
    __slots__ = ("children", "owners")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.owners: set[str] = set()


class SubjectOwners:
    """Subjects, which may be patterns, by the names of those who have them."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, owner: str, subjects: Iterable[str]) -> None:
        """`owner` has these too from now on."""
        for subject in subjects:
            node = self._root
            for token in subject.split("."):
                node = node.children.setdefault(token, _Node())
            node.owners.add(owner)

    def remove(self, owner: str, subjects: Iterable[str]) -> None:
        """`owner` has these no more; those that it has not are passed over."""
        for subject in subjects:
            path: list[tuple[_Node, str]] = []
            node: _Node | None = self._root
            for token in subject.split("."):
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

    def others(self, owner: str, subject: str) -> bool:
        """Whether somebody else has a subject that shares a literal one with this."""
        return any(found != owner for found in _colliding(self._root, subject.split("."), 0))


def _colliding(node: _Node, tokens: list[str], index: int) -> Iterator[str]:
    """The owners below a node that collide with the rest of a subject."""
    if index == len(tokens):
        yield from node.owners
        return
    token = tokens[index]
    if token == FULL_WILDCARD:
        for child in node.children.values():
            yield from _all_owners(child)
        return
    full = node.children.get(FULL_WILDCARD)
    if full is not None:
        yield from full.owners
    if token == WILDCARD:
        for name, child in node.children.items():
            if name != FULL_WILDCARD:
                yield from _colliding(child, tokens, index + 1)
        return
    for name in (token, WILDCARD):
        child_or_none = node.children.get(name)
        if child_or_none is not None:
            yield from _colliding(child_or_none, tokens, index + 1)


def _all_owners(node: _Node) -> Iterator[str]:
    nodes = [node]
    while nodes:
        current = nodes.pop()
        yield from current.owners
        nodes.extend(current.children.values())
