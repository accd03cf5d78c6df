"""The version of Tradewind itself; the protocol version that it speaks is in `wire.ops`."""

__version__ = "0.1.0"
