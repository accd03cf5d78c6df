"""Buckets and keys as pages show them, on both servers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from dashboard.conftest import Web
from harness import wait_for

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
    refused = web.send(f"{path}/put", 409, key="fruit.pear", value="late", revision=2)
    assert "its last revision is 5, not 2" in refused
    assert "has a value already" in web.send(f"{path}/put", 409, key="fruit.pear", value="x")
    assert "is set" in web.send(f"{path}/put", key="fresh", value="x")
    assert "its history stays" in web.send(f"{path}/delete", key="fruit.pear", revision=5)
    assert bucket.get("fruit.pear") is None
    assert "deleted" in web.text("/kv/prices/fruit.pear")
    assert "key" in web.send(f"{path}/put", 502, key="a b", value="x")
    assert "bucket 'nothing' does not exist" in web.text("/kv/nothing/x", 404)
    assert "stream not found" in web.text("/kv/nothing", 404)
    assert "stream not found" in web.text("/streams/NOTHING/subjects", 404)


def test_a_bucket_is_made_changed_and_deleted(web: Web, nats: Connection) -> None:
    fields = {"name": "cache", "history": 3, "ttl": "2h", "max_bytes": 1 << 20, "allow_ttl": 1}
    assert "Bucket cache was created." in web.send("/new-bucket", storage="memory", **fields)
    config = nats.jetstream_manager().streams.info("KV_cache").config
    assert (config.max_age, config.max_msgs_per_subject) == (7200 * 10**9, 3)
    assert config.allow_msg_ttl
    assert "cache 0 0 B 3 2 hours" in web.text("/kv")
    page = web.page("/buckets/cache/settings")
    assert 'name="ttl" id="in-ttl" value="2h"' in page
    changed = {"history": 5, "ttl": "", "allow_ttl": 1, "marker_ttl": "1m"}
    assert "were changed" in web.send("/buckets/cache/settings", **changed)
    config = nats.jetstream_manager().streams.info("KV_cache").config
    assert (config.max_age, config.max_msgs_per_subject) == (0, 5)
    assert config.subject_delete_marker_ttl == 60 * 10**9
    assert "history" in web.send("/new-bucket", 502, name="x", history=65)
    assert "ttl" in web.send("/new-bucket", 400, name="x", ttl="soon")
    assert "nothing was done" in web.send("/buckets/cache/delete", 400, typed="x")
    assert "Bucket cache was deleted." in web.send("/buckets/cache/delete", typed="cache")
    assert "There are no buckets." in web.text("/kv")


def test_a_key_expires_when_it_is_told_to(web: Web, nats: Connection) -> None:
    bucket = nats.jetstream().kv.create("cache", allow_ttl=True)
    path = "/kv/cache/-"
    assert "is set, revision 1" in web.send(f"{path}/put", key="a", value="1", ttl="1h")
    assert "It expires in 59 minutes" in web.text("/kv/cache/a")
    assert "is set, revision 2" in web.send(f"{path}/put", key="a", value="2", revision=1)
    assert "It expires" not in web.text("/kv/cache/a")
    web.send(f"{path}/put", key="a", value="3", revision=2, ttl="1s")
    wait_for(lambda: bucket.get("a") is None)
    # What is before a value that expires would be back.
    kept = nats.jetstream().kv.create("kept", history=3, allow_ttl=True)
    assert "is set" in web.send("/kv/kept/-/put", key="a", value="1", ttl="1h")
    fields = {"key": "a", "value": "2", "revision": 1, "ttl": "1h"}
    assert "would reappear" in web.send("/kv/kept/-/put", 400, **fields)
    kept.delete("a")
    assert "is set" in web.send("/kv/kept/-/put", **{**fields, "revision": 2})
    nats.jetstream().kv.create("plain").put("a", b"1")
    refused = web.send("/kv/plain/-/put", 409, key="a", value="2", revision=1, ttl="1h")
    assert "ttl" in refused.lower()


def test_a_key_is_purged_and_markers_are_removed(web: Web, nats: Connection) -> None:
    bucket = nats.jetstream().kv.create("cache", history=5)
    for number in range(3):
        bucket.put("a", str(number))
    assert "its last revision is 3" in web.send("/kv/cache/-/purge", 409, key="a", revision=2)
    assert "with its history" in web.send("/kv/cache/-/purge", key="a", revision=3)
    assert nats.jetstream_manager().streams.info("KV_cache").state.messages == 1
    assert "1 markers were removed." in web.send("/buckets/cache/markers", older="")
    assert nats.jetstream_manager().streams.info("KV_cache").state.messages == 0


def test_changes_are_watched_as_they_come(web: Web, nats: Connection) -> None:
    bucket = nats.jetstream().kv.create("prices")
    bucket.put("fruit.pear", b"before")
    assert "1 " in web.text("/buckets/prices/watch")
    wait_for(lambda: "fruit.pear set before" in web.text("/buckets/prices/watch"))
    web.text("/buckets/prices/watch?keys=nuts.*")
    # Each of them is seen, though the bucket keeps only the last.
    for number in range(5):
        bucket.put("fruit.pear", f"<b>{number}")
        # What is replaced before the server has sent it is not sent.
        change = f"fruit.pear set <b>{number}"
        wait_for(lambda change=change: change in web.text("/buckets/prices/watch"))
    bucket.put("nuts.almond", b"7")
    bucket.delete("fruit.pear")
    wait_for(lambda: "fruit.pear deleted" in web.text("/buckets/prices/watch"))
    text = web.text("/buckets/prices/watch")
    assert all(f"fruit.pear set <b>{number}" in text for number in range(5))
    assert "<b>" not in web.page("/buckets/prices/watch")
    part = "/buckets/prices/watch?keys=nuts.*"
    wait_for(lambda: "nuts.almond set 7" in web.text(part))
    assert "pear" not in web.text(part)
    assert "a pattern" in web.text("/buckets/prices/watch?keys=a b", 502)
    assert "bucket 'nothing' does not exist" in web.text("/buckets/nothing/watch")


def test_an_open_page_of_a_key_leaves_no_trace(web: Web, nats: Connection) -> None:
    # A bucket that no page of another test still watches.
    bucket = nats.jetstream().kv.create("traceless", history=2)
    for number in range(3):
        bucket.put("pear", f"value {number}")
    created = nats.subscribe("$JS.EVENT.ADVISORY.CONSUMER.*.KV_traceless.>")
    nats.flush()
    text = web.text("/kv/traceless/pear")
    assert "value 2" in text
    assert "value 1" in text
    assert "value 0" not in text
    nats.flush()
    assert created.pending_messages == 0
    created.unsubscribe()
    # Buckets of older clients allow no direct gets.
    nats.jetstream_manager().streams.update("KV_traceless", allow_direct=False)
    assert "value 1" in web.text("/kv/traceless/pear")


def test_keys_are_listed_with_value_revision_age_and_state(web: Web, nats: Connection) -> None:
    bucket = nats.jetstream().kv.create("fruit", history=3)
    bucket.put("pear", b"0.40")
    bucket.put("pear", b"0.45")
    bucket.put("fig", b"0.10")
    bucket.delete("fig")
    for key in ("plum", "quince", "rhubarb"):
        bucket.put(key, b"x" * 600_000)
    text = web.text("/kv/fruit")
    assert re.search(r"fig none 4 (now|\d+ s ago) deleted", text)
    assert re.search(r"pear 0\.45 2 4 B (now|\d+ s ago) set", text)
    # More than a batch holds: the rest is not read.
    assert "586 KiB" in text
    assert "rhubarb open the key to see it" in text


def test_a_bucket_without_direct_gets_lists_its_keys(web: Web, nats: Connection) -> None:
    streams = nats.jetstream_manager().streams
    settings = {"allow_rollup_hdrs": True, "max_msgs_per_subject": 1, "allow_direct": False}
    streams.add(name="KV_plain", subjects=["$KV.plain.>"], discard="new", **settings)
    nats.jetstream().publish("$KV.plain.pear", b"1")
    assert "pear open the key to see it" in web.text("/kv/plain")
