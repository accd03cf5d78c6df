"""Key-value buckets: entries, keys, watching."""

from tradewind.client.kv.kv import KeyValue

__all__ = ["KeyValue"]
