"""Shell completion of names: streams, consumers and buckets of the server, and contexts.

It never reports an error: without a server, or with a slow one, it offers nothing.
"""

from __future__ import annotations

from typing import Any

from tradewind.api.names import KV_STREAM, OBJECT_STREAM
from tradewind.cli.frame import settings
from tradewind.errors import TradewindError

# Somebody waits at the keyboard.
TIMEOUT = "1s"


def complete_stream(incomplete: str) -> list[str]:
    """Names of streams."""
    return [name for name in _names("") if name.startswith(incomplete)]


def complete_consumer(ctx: Any, incomplete: str) -> list[str]:
    """Names of consumers of the stream that stands in front."""
    stream = ctx.params.get("stream") or ""
    return [name for name in _names(stream) if stream and name.startswith(incomplete)]


def complete_kv(incomplete: str) -> list[str]:
    """Names of key-value buckets."""
    return _with_prefix(KV_STREAM, incomplete)


def complete_object(incomplete: str) -> list[str]:
    """Names of object stores."""
    return _with_prefix(OBJECT_STREAM, incomplete)


def complete_context(incomplete: str) -> list[str]:
    """Names of contexts."""
    from tradewind.cli.frame import context_files

    return [name for name in context_files.names() if name.startswith(incomplete)]


def _with_prefix(prefix: str, incomplete: str) -> list[str]:
    """The names of streams that begin like this, without the prefix."""
    names = _names("")
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix + incomplete)]


def _names(stream: str) -> list[str]:
    if not settings.current().text("timeout"):
        settings.current().given["timeout"] = TIMEOUT
    try:
        with settings.connect() as connection:
            manager = settings.manager(connection)
            return (
                manager.consumers.names(stream).all() if stream else manager.streams.names().all()
            )
    except (TradewindError, OSError):
        return []
