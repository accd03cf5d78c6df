"""The tree against the definition of RFC 6962, known answers, and every wrong proof."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_kit import root_of
from tradewind.chain import merkle
from tradewind.chain.chain_entries import SHA256, ChainError, Digest, digest_of

FEW = settings(max_examples=40)

SHA = digest_of(SHA256)
# The leaves and roots with which implementations of certificate transparency test themselves.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
LINKS = [SHA(b"\x00" + leaf) for leaf in LEAVES]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PATH_OF_0_IN_8 = [
    "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
    "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
    "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
]
FROM_6_TO_8 = [
    "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
    "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
]

sizes = st.integers(1, 70)


def links(count: int) -> list[bytes]:
    return [SHA(b"%d" % index) for index in range(count)]


def naive_root(digest: Digest, leaves: list[bytes]) -> bytes:
    """The definition, word by word."""
    if not leaves:
        return digest(b"")
    if len(leaves) == 1:
        return leaves[0]
    split = max(1 << n for n in range(64) if 1 << n < len(leaves))
    left, right = naive_root(digest, leaves[:split]), naive_root(digest, leaves[split:])
    return digest(b"\x01" + left + right)


def naive_inclusion(leaves: list[bytes], index: int) -> list[bytes]:
    if len(leaves) == 1:
        return []
    split = max(1 << n for n in range(64) if 1 << n < len(leaves))
    if index < split:
        return [*naive_inclusion(leaves[:split], index), naive_root(SHA, leaves[split:])]
    return [*naive_inclusion(leaves[split:], index - split), naive_root(SHA, leaves[:split])]


def naive_consistency(leaves: list[bytes], size: int, is_whole: bool = True) -> list[bytes]:
    if size == len(leaves):
        return [] if is_whole else [naive_root(SHA, leaves)]
    split = max(1 << n for n in range(64) if 1 << n < len(leaves))
    if size <= split:
        return [
            *naive_consistency(leaves[:split], size, is_whole),
            naive_root(SHA, leaves[split:]),
        ]
    left = naive_root(SHA, leaves[:split])
    return [*naive_consistency(leaves[split:], size - split, False), left]


def path_of(ranges: list[merkle.Range], leaves: list[bytes]) -> list[bytes]:
    return [root_of(SHA, leaves[first:end]) for first, end in ranges]


@pytest.mark.parametrize("size", range(9))
def test_known_trees_have_their_known_roots(size: int) -> None:
    assert root_of(SHA, LINKS[:size]).hex() == ROOTS[size]


def test_known_proofs_are_made_and_accepted() -> None:
    root = bytes.fromhex(ROOTS[8])
    path = path_of(merkle.inclusion_ranges(0, 8), LINKS)
    assert [node.hex() for node in path] == PATH_OF_0_IN_8
    assert merkle.is_included(SHA, 0, 8, LINKS[0], path, root)
    path = path_of(merkle.consistency_ranges(6, 8), LINKS)
    assert [node.hex() for node in path] == FROM_6_TO_8
    assert merkle.is_consistent(SHA, 6, 8, bytes.fromhex(ROOTS[6]), root, path)


@FEW
@given(st.integers(0, 70))
def test_the_root_of_a_growing_tree_is_the_defined_one(size: int) -> None:
    leaves = links(size)
    frontier = merkle.Frontier(SHA)
    for leaf in leaves:
        frontier.append(leaf)
    assert frontier.size == size
    assert frontier.root() == naive_root(SHA, leaves)


@FEW
@given(sizes, st.data())
def test_inclusion_proofs_are_the_defined_ones_and_prove_only_their_entry(
    size: int, data: st.DataObject
) -> None:
    leaves = links(size)
    root = naive_root(SHA, leaves)
    index = data.draw(st.integers(0, size - 1))
    path = path_of(merkle.inclusion_ranges(index, size), leaves)
    assert path == naive_inclusion(leaves, index)
    assert merkle.is_included(SHA, index, size, leaves[index], path, root)
    assert not merkle.is_included(SHA, index, size, SHA(b"other"), path, root)
    for other in range(size):
        if other != index:
            assert not merkle.is_included(SHA, other, size, leaves[index], path, root)
    assert not merkle.is_included(SHA, index, size, leaves[index], [*path, root], root)
    if path:
        assert not merkle.is_included(SHA, index, size, leaves[index], path[:-1], root)
        changed = data.draw(st.integers(0, len(path) - 1))
        wrong = [SHA(node) if n == changed else node for n, node in enumerate(path)]
        assert not merkle.is_included(SHA, index, size, leaves[index], wrong, root)


@FEW
@given(sizes, st.data())
def test_consistency_proofs_are_the_defined_ones_and_prove_only_their_trees(
    size: int, data: st.DataObject
) -> None:
    leaves = links(size)
    root = naive_root(SHA, leaves)
    first_size = data.draw(st.integers(1, size))
    first_root = naive_root(SHA, leaves[:first_size])
    path = path_of(merkle.consistency_ranges(first_size, size), leaves)
    assert path == naive_consistency(leaves, first_size)
    assert merkle.is_consistent(SHA, first_size, size, first_root, root, path)
    assert not merkle.is_consistent(SHA, first_size, size, SHA(first_root), root, path)
    assert not merkle.is_consistent(SHA, first_size, size, first_root, SHA(root), path)
    assert not merkle.is_consistent(SHA, first_size, size, first_root, root, [*path, root])
    if path:
        assert not merkle.is_consistent(SHA, first_size, size, first_root, root, path[:-1])
        changed = data.draw(st.integers(0, len(path) - 1))
        wrong = [SHA(node) if n == changed else node for n, node in enumerate(path)]
        assert not merkle.is_consistent(SHA, first_size, size, first_root, root, wrong)


@FEW
@given(sizes, st.data())
def test_a_tree_with_one_old_entry_changed_does_not_continue_the_old_one(
    size: int, data: st.DataObject
) -> None:
    old = links(size)
    first_size = data.draw(st.integers(1, size))
    changed = data.draw(st.integers(0, first_size - 1))
    new = [SHA(link) if index == changed else link for index, link in enumerate(old)]
    path = path_of(merkle.consistency_ranges(first_size, size), new)
    first_root, root = naive_root(SHA, old[:first_size]), naive_root(SHA, new)
    assert not merkle.is_consistent(SHA, first_size, size, first_root, root, path)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (-1, 3), (5, 4)])
def test_entries_outside_of_a_tree_have_no_proof(index: int, size: int) -> None:
    with pytest.raises(ChainError, match="has no entry"):
        merkle.inclusion_ranges(index, size)
    assert not merkle.is_included(SHA, index, size, LINKS[0], [], LINKS[0])


@pytest.mark.parametrize(("first_size", "size"), [(0, 3), (4, 3), (-1, 3)])
def test_trees_that_do_not_follow_have_no_proof(first_size: int, size: int) -> None:
    with pytest.raises(ChainError, match="does not continue"):
        merkle.consistency_ranges(first_size, size)
    assert not merkle.is_consistent(SHA, first_size, size, LINKS[0], LINKS[0], [])


def test_the_largest_tree_has_short_proofs() -> None:
    size = 1 << 64
    assert len(merkle.inclusion_ranges(size - 2, size)) == merkle.DEPTH_MAX
    assert len(merkle.consistency_ranges(size // 2 + 1, size)) <= merkle.PATH_MAX


def test_paths_of_any_other_shape_prove_nothing() -> None:
    root = bytes.fromhex(ROOTS[8])
    path = [bytes.fromhex(node) for node in PATH_OF_0_IN_8]
    assert not merkle.is_included(SHA, 0, 8, LINKS[0], [path[0][:-1], *path[1:]], root)
    assert not merkle.is_included(SHA, 0, 8, LINKS[0], path * 100, root)
    assert not merkle.is_included(SHA, 0, 8, LINKS[0][:-1], path, root)
    assert not merkle.is_consistent(SHA, 6, 8, root, root, [b""])
    assert not merkle.is_consistent(SHA, 8, 8, LINKS[0], root, [])
