"""Streams, consumers and buckets declared in a file: reading, comparing, writing.

`tradewind apply` and `tradewind export` are the commands.
"""
