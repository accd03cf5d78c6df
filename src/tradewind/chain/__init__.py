"""Hash chains of streams: what their entries, trees, checkpoints and files look like.

Reading and verifying only, in plain Python and without a server: the files, or the pages of entries
that a server sends, can be checked with this package alone. It depends on keys and errors, never on
stores, servers or clients.

`entries` has what is hashed and how, `merkle` the tree over all links with its proofs,
`checkpoints` the signed heads, `files` the folder on disk.
"""

from __future__ import annotations

from tradewind.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tradewind.chain.checkpoints import Checkpoint
    from tradewind.chain.proofs import check_proof

_LAZY = {
    "Checkpoint": "tradewind.chain.checkpoints",
    "check_proof": "tradewind.chain.proofs",
}

__all__ = [
    "Checkpoint",
    "check_proof",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
