"""Key-value buckets: entries, keys, watches."""

from tradewind.client.kv.kv import KeyValue

__all__ = ["KeyValue"]
