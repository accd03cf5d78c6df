"""Streams, consumers and buckets as a file declares them: reading, comparing, writing.

`tradewind apply` and `tradewind export` are the commands on top.
"""
