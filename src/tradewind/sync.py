"""The client for programs without an event loop: scripts, notebooks, threads.

    import tradewind.sync

    with tradewind.sync.connect("nats://127.0.0.1:4222") as connection:
        for message in connection.subscribe("orders.*"):
            print(message.subject, message.data)

The same API as `tradewind.connect`, each call blocking; usable from several threads. How it works
is in `client/blocking.py`; `sync.pyi` has the types and is written by `tools/sync_stub.py`.
"""

from __future__ import annotations

from tradewind.client.blocking import connect_blocking as connect

__all__ = ["connect"]
