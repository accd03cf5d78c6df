"""The `proxies` block: the keys of the proxies whose connections are trusted.

Owns reading the block. It never checks a signature, which is up to `broker.proxies`.
"""

from __future__ import annotations

from tradewind.broker.proxies import TRUSTED_MAX
from tradewind.server.config.reader import Reader, expect, fault, text
from tradewind.server.config.tree import ConfigNode


def read_proxies(reader: Reader, node: ConfigNode, key: str) -> tuple[str, ...]:
    """The public keys of a block `{ trusted: [ {key: U...} ] }`, each once."""

    def trusted(child: ConfigNode, name: str) -> tuple[str, ...]:
        items = expect(child, name, list, "a list of proxies: [ {key: U...} ]")
        keys = dict.fromkeys(_key(reader, item, f"each of {name}") for item in items)
        if len(keys) > TRUSTED_MAX:
            raise fault(child, f"{name} has {len(keys)} proxies, the limit is {TRUSTED_MAX}")
        return tuple(keys)

    return tuple(reader.fields(node, key, {"trusted": ("trusted", trusted)}).get("trusted", ()))


def _key(reader: Reader, node: ConfigNode, name: str) -> str:
    found = reader.fields(node, name, {"key": ("key", _public_key)})
    if "key" not in found:
        raise fault(node, f"{name} needs a key: the public nkey with which the proxy signs")
    return str(found["key"])


def _public_key(node: ConfigNode, key: str) -> str:
    # Imported here because it brings the signature library, which few configurations need.
    from tradewind.nkeys import CURVE, is_public

    public_key = text(node, key)
    if not is_public(public_key) or public_key.startswith(CURVE):
        raise fault(node, f"{key} must be a public nkey: 56 letters such as U...")
    return public_key
