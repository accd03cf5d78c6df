"""Compression of leaf connections: negotiating the mode, and applying it.

Owns the table of modes and the choice of the encoder for a mode. The codec is that of the store.
"""

from __future__ import annotations

from collections.abc import Callable

from tradewind.options import CompressionOptions
from tradewind.store.format.s2 import Decompressor, compress, wrap

MODES = ("off", "accept", "s2_auto", "s2_fast", "s2_better", "s2_best")
NOT_SUPPORTED = "not supported"
SIZE_MAX = 2**63

Encode = Callable[[bytes], bytes]


def agreed_mode(own: str, peer: str) -> str:
    """The mode of this end, given the mode that the other end announces; "" or "off" mean no
    compression.
    """
    if not peer or peer == NOT_SUPPORTED:
        return NOT_SUPPORTED
    if own == "off" or peer == "off":
        return "off"
    if own == "accept":
        if peer == "accept":
            return "off"
        return "s2_fast" if peer == "s2_auto" else peer
    return own


def is_compressing(mode: str) -> bool:
    """Whether bytes travel as S2 in this mode."""
    return mode.startswith("s2_")


def shown_mode(options: CompressionOptions, mode: str, rtt_ns: int) -> str:
    """The mode that monitoring shows; for s2_auto, the one in use at present."""
    if mode != "s2_auto":
        return mode
    names = ("s2_uncompressed", "s2_fast", "s2_better", "s2_best")
    level = sum(rtt_ns >= threshold for threshold in options.thresholds_ns)
    return names[min(level, len(names) - 1)]


def encoder(shown: str) -> Encode:
    """The function that encodes bytes as S2. There is a single level of compression, whatever the
    mode's name asks for.
    """
    return wrap if shown == "s2_uncompressed" else compress


def decoder() -> Decompressor:
    """The decoder of all input; holds one chunk at most."""
    return Decompressor(SIZE_MAX)
