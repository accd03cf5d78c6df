"""The `jetstream` block.

Owns its keys and units. It never interprets the limits, which is up to the storage engine.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tradewind.options import NO_SECRET, EncryptionOptions, RemoteOptions, Secret
from tradewind.server.config.absent import REFUSED_JETSTREAM, refused
from tradewind.server.config.access import enabled_or_disabled
from tradewind.server.config.reader import (
    Reader,
    duration,
    expect,
    fault,
    ignored,
    integer,
    integer_from,
    size,
    text,
    truth,
)
from tradewind.server.config.tree import ConfigNode

_CIPHERS = ("aes", "chacha", "chachapoly")


def read_jetstream(reader: Reader, node: ConfigNode, key: str) -> dict[str, Any]:
    """Fields of `JetStreamOptions` that the block sets."""
    if not isinstance(node.value, dict):
        return {"enabled": enabled_or_disabled(node, key)}

    def limits(child: ConfigNode, name: str) -> dict[str, Any]:
        return _limits(reader, child, name)

    def remotes(child: ConfigNode, name: str) -> tuple[RemoteOptions, ...]:
        from tradewind.server.config.remote_config import read_remotes  # it brings the client

        return read_remotes(reader, child, name)

    store_dir = ("store_dir", text)
    memory = ("max_memory_bytes", size)
    file = ("max_file_bytes", size)
    sync = ("sync_interval_ns", partial(_sync_interval, reader))
    enabled = ("enabled", truth)
    main_key = ("key", _main_key)
    previous_key = ("previous_key", _main_key)
    fields = reader.fields(
        node,
        key,
        {
            "enabled": enabled,
            "enable": enabled,
            "strict": ("strict", truth),
            "read_only": ("read_only", truth),
            "store_dir": store_dir,
            "store": store_dir,
            "storedir": store_dir,
            "max_memory_store": memory,
            "max_mem_store": memory,
            "max_mem": memory,
            "max_file_store": file,
            "max_file": file,
            "domain": ("domain", _domain),
            "sync_interval": sync,
            "sync": sync,
            "limits": ("limits", limits),
            "max_buffered_size": ("max_buffered_bytes", size),
            "max_buffered_msgs": ("max_buffered_msgs", integer_from(0)),
            "request_queue_limit": ("request_queue_limit", integer_from(0)),
            "info_queue_limit": ("info_queue_limit", integer_from(0)),
            "max_concurrent_io": ("max_concurrent_io", integer_from(0)),
            "extension_hint": ("extension_hint", text),
            "unique_tag": ("unique_tag", text),
            "legacy_preview": ("legacy_preview", truth),
            "remotes": ("remotes", remotes),
            "key": main_key,
            "ek": main_key,
            "encryption_key": main_key,
            "prev_key": previous_key,
            "prev_ek": previous_key,
            "prev_encryption_key": previous_key,
            "cipher": ("cipher", _cipher),
            "chain_key": ("chain_key", _chain_key),
            # Applies only to the metadata of a cluster.
            "max_outstanding_catchup": ("", size),
            "meta_compact": ("", integer),
            "meta_compact_size": ("", size),
            "meta_compact_sync": ("", ignored),
            **refused(REFUSED_JETSTREAM),
        },
    )
    return {"enabled": True, **_encryption(node, fields)}


def _encryption(node: ConfigNode, fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields, with the encryption keys combined into one field."""
    key, previous = fields.pop("key", NO_SECRET), fields.pop("previous_key", NO_SECRET)
    cipher = fields.pop("cipher", "chacha")
    if key:
        return {**fields, "encryption": EncryptionOptions(key, previous, cipher)}
    if previous:
        raise fault(node, "prev_key needs key: the new key for data encrypted with prev_key")
    return fields


def _sync_interval(reader: Reader, node: ConfigNode, key: str) -> int:
    if isinstance(node.value, str) and node.value.lower() == "always":
        return 0
    return reader.duration_or_seconds(node, key)


def _limits(reader: Reader, node: ConfigNode, key: str) -> dict[str, Any]:
    def batch(child: ConfigNode, name: str) -> dict[str, Any]:
        return reader.fields(
            child,
            name,
            {
                "max_inflight_per_stream": ("batch_max_inflight_per_stream", integer),
                "max_inflight_total": ("batch_max_inflight_total", integer),
                "max_msgs": ("batch_max_msgs", integer),
                "timeout": ("batch_timeout_ns", duration),
            },
        )

    fields = reader.fields(
        node,
        key,
        {
            "default_max_consumers": ("default_max_consumers", integer),
            "max_ack_pending": ("max_ack_pending", integer),
            "max_ha_assets": ("max_ha_assets", integer),
            "max_request_batch": ("max_request_batch", integer),
            "duplicate_window": ("duplicate_window_ns", duration),
            "batch": ("batch", batch),
        },
    )
    return {**fields.pop("batch", {}), **fields}


def _domain(node: ConfigNode, key: str) -> str:
    name = text(node, key)
    if any(character in name for character in ".*>") or any(map(str.isspace, name)):
        raise fault(node, f"{key} {name!r} must not contain '.', '*', '>' or spaces")
    return name


def _main_key(node: ConfigNode, key: str) -> Secret:
    value = text(node, key)
    if not value:
        raise fault(node, f"{key} is empty: nothing would be encrypted")
    return Secret(value)


def _chain_key(node: ConfigNode, key: str) -> Secret:
    value = text(node, key)
    if not value:
        raise fault(node, f"{key} is empty: give the seed of an nkey, or the path of its file")
    return Secret(value)


def _cipher(node: ConfigNode, key: str) -> str:
    name = expect(node, key, str, "a cipher name").lower()
    if name not in _CIPHERS:
        raise fault(node, f"{key} {name!r} is unknown; valid values: {', '.join(_CIPHERS)}")
    return name
