"""Payloads as columns: decoders over Arrow batches, chosen by name.

`decoder_contract` is what a decoder promises, `decoder_registry` opens one by its name.
Nothing here knows Spark, pipelines or tables.
"""

from __future__ import annotations

from tradewind.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tradewind.decoding.decoder_registry import open_decoder

_LAZY = {
    "open_decoder": "tradewind.decoding.decoder_registry",
}

__all__ = [
    "open_decoder",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
