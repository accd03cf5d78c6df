"""The hash chain of a stream: requests and answers of Tradewind's own API.

Owns the fields and their limits. Hashes are lower case hex; the entries and the checkpoints
themselves are in `tradewind.chain`. nats-server has no such requests.
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from tradewind.api.base import ApiStruct, Uint64, always
from tradewind.api.truncation_types import OWN_TYPE_PREFIX
from tradewind.chain.checkpoints import Checkpoint

# In the metadata of a stream: the algorithm, and when a checkpoint is made.
CHAIN_KEY: Final = "tradewind.chain"
CHAIN_MESSAGES_KEY: Final = "tradewind.chain.messages"
CHAIN_SECONDS_KEY: Final = "tradewind.chain.seconds"

ENTRIES_MAX: Final = 10_000
ENTRIES_BYTES_MAX: Final = 512 * 1024


class ChainProofRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.CHAIN.PROOF: prove that an entry is in the chain, or that one head continues another.

    The entry is that of message `seq`, or entry `index`. `size`: in the tree of this many entries;
    0 is the last checkpoint. With `first_size` it is the proof that the tree of `size` begins with
    the one of `first_size`.
    """

    seq: Uint64 = 0
    index: Uint64 | None = None
    size: Uint64 = 0
    first_size: Uint64 = 0


class ChainEntriesRequest(ApiStruct, frozen=True, kw_only=True):
    """STREAM.CHAIN.ENTRIES: `count` entries from `index` on; 0 is as many as fit."""

    index: Uint64 = 0
    count: Uint64 = 0


class ChainInfo(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "stream_chain_info_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.CHAIN.INFO. `size` is the number of entries, `link` that of the last one; `key`
    signs.
    """

    algorithm: str = always("")
    size: Uint64 = always(0)
    link: str = always("")
    last_seq: Uint64 = always(0)
    is_broken: bool = always(False)
    broken_index: Uint64 | None = None
    broken_reason: str = ""
    checkpoint: Checkpoint | None = None
    key: str = always("")


class ChainCheckpoint(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "stream_chain_checkpoint_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.CHAIN.CHECKPOINT: the new checkpoint, or the last one if there are no new entries."""

    checkpoint: Checkpoint | None = None


class ChainProof(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "stream_chain_proof_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.CHAIN.PROOF. `path` is as in RFC 9162; `index` and `link` are those of the entry."""

    size: Uint64 = always(0)
    root: str = always("")
    path: list[str] = field(default_factory=list)
    index: Uint64 | None = None
    link: str = ""
    first_size: Uint64 = 0


class ChainEntries(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "stream_chain_entries_response",
    frozen=True,
    kw_only=True,
):
    """STREAM.CHAIN.ENTRIES: `records` as `tradewind.chain.chain_entries` reads them, `before` is
    the link before the first of them, `size` how many entries the chain has.
    """

    first_index: Uint64 = always(0)
    before: str = always("")
    records: bytes = always(b"")
    size: Uint64 = always(0)
