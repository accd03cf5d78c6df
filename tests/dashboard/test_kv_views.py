"""Buckets and keys as pages show them, on both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from dashboard.conftest import Web

if TYPE_CHECKING:
    from tradewind.sync import Connection


def test_keys_are_listed_with_history_and_changed_with_a_check(web: Web, nats: Connection) -> None:
    bucket = nats.jetstream().kv.create("prices", history=5)
    bucket.put("fruit.pear", b'{"price": 1}')
    bucket.put("fruit.pear", b'{"price": 2}')
    bucket.put("fruit.apple", b"3")
    bucket.put("nuts/x=1", b"<script>alert(1)</script>")
    assert "prices 3" in web.text("/kv")
    assert "2 keys shown" in web.text("/kv/prices?search=fruit.")
    assert "1 key shown" in web.text("/kv/prices?search=fruit.p")
    text = web.text("/kv/prices/fruit.pear")
    assert '- "price": 1 + "price": 2' in text
    assert "Revision 2" in text
    hostile = web.page(f"/kv/prices/{quote('nuts/x=1', safe='')}")
    assert hostile.count("<script") == 1
    assert "&lt;script&gt;" in hostile
    path = "/kv/prices/-"
    text = web.send(f"{path}/put", key="fruit.pear", value="new", revision=2)
    assert "Key fruit.pear is set, revision 5." in text
    # Somebody else was faster.
    refused = web.send(f"{path}/put", 502, key="fruit.pear", value="late", revision=2)
    assert "its last revision is 5, not 2" in refused
    assert "has a value already" in web.send(f"{path}/put", 502, key="fruit.pear", value="x")
    assert "is set" in web.send(f"{path}/put", key="fresh", value="x")
    assert "its history stays" in web.send(f"{path}/delete", key="fruit.pear", revision=5)
    assert bucket.get("fruit.pear") is None
    assert "deleted" in web.text("/kv/prices/fruit.pear")
    assert "key" in web.send(f"{path}/put", 502, key="a b", value="x")
    assert "no bucket" in web.text("/kv/nothing/x", 502)
    assert "stream not found" in web.text("/kv/nothing", 404)
    assert "stream not found" in web.text("/streams/NOTHING/subjects", 404)
