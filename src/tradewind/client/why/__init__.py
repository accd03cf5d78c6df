"""Explains why messages are not delivered, not stored or not removed.

An explanation is one sentence, what to do, and the command that does it. The command line and the
dashboard show the same. `consumer_reasons` and `stream_reasons` judge the facts and never send
requests; `asking` collects the facts.
"""
