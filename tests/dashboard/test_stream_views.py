"""Streams, messages and consumers as pages show them, on both servers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import tradewind.sync
from dashboard.conftest import Web, area_of, connected_dashboard, hidden_fields
from harness import ServerProcess, wait_for
from tradewind.client.api_errors import ConsumerNotFoundError, StreamNotFoundError
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings

if TYPE_CHECKING:
    from tradewind.sync import Connection

SCRIPT = "<script>alert(1)</script>"


def fill(nats: Connection, *, name: str = "ORDERS", messages: int = 40, **more: Any) -> None:
    settings = {"subjects": [f"{name.lower()}.>"], "allow_direct": True, **more}
    nats.jetstream_manager().streams.add(name=name, **settings)
    js = nats.jetstream()
    for number in range(1, messages + 1):
        subject = f"{name.lower()}.{'eu' if number % 4 else 'us'}"
        js.publish(subject, json.dumps({"number": number}), headers={"Trace": f"t{number}"})


# ---------------------------------------------------------------------- overview


def test_the_overview_shows_load_use_and_what_happened(web: Web, nats: Connection) -> None:
    web.page("/")
    fill(nats, messages=3)
    wait_for(lambda: "Stream ORDERS was created." in web.text("/"))
    wait_for(lambda: "Streams 1" in web.text("/"))
    text = web.text("/")
    assert "this account" in text
    assert "Version 2.15.1" in text
    assert "Reconnecting" not in text


# ---------------------------------------------------------------------- streams


def test_streams_are_searched_by_a_part_of_their_name(web: Web, nats: Connection) -> None:
    for name in ("ALPHA", "BETA", "ALPHABET"):
        fill(nats, name=name, messages=1)
    wait_for(lambda: "ALPHABET" in web.text("/streams"))
    text = web.text("/streams?search=alpha&go=1")
    assert "ALPHABET" in text
    assert "BETA " not in text.replace("ALPHABET", "")
    # A whole name leads to its stream.
    assert web.get("/streams?search=BETA").headers["location"] == "/streams/BETA"
    assert "No stream has 'zzz'" in web.text("/streams?search=zzz")


def test_many_streams_come_in_pages(web: Web, nats: Connection) -> None:
    streams = nats.jetstream_manager().streams
    for number in range(55):
        streams.add(name=f"S{number:02}", subjects=[f"s{number}"], storage="memory")
    wait_for(lambda: "1 to 50 of 55" in web.text("/streams"))
    assert "S49" in web.text("/streams")
    assert "S50" not in web.text("/streams")
    text = web.text("/streams?first=50")
    assert "S54" in text
    assert "51 to 55 of 55" in text


def test_a_stream_is_described_in_words_and_numbers(web: Web, nats: Connection) -> None:
    fill(nats, max_msgs=1000, max_age="1h")
    fill(nats, name="COPY", messages=0, subjects=[], mirror={"name": "ORDERS"})
    text = web.text("/streams/ORDERS")
    assert "It stores what is published to orders.>, on disk." in text
    assert "at most 1,000 messages, an age of 1 hour" in text
    assert "Messages 40" in text
    assert '"max_msgs": 1000' in web.text("/streams/ORDERS/config")
    assert "orders.eu 30 orders.us 10 2 subjects" in web.text("/streams/ORDERS/subjects")
    assert "orders.us 10 1 subject" in web.text("/streams/ORDERS/subjects?pattern=*.us")
    assert "is not a subject" in web.text("/streams/ORDERS/subjects?pattern=a..b")
    wait_for(lambda: "up to date" in web.text("/streams/COPY"))
    assert "Mirrored from" in web.text("/streams/COPY")


def test_a_stream_is_created_by_the_form(web: Web, nats: Connection) -> None:
    fields = {"name": "NEW", "subjects": "new.*, newer.>", "max_age": "90m", "max_msgs": 5}
    text = web.send("/new-stream", storage="memory", retention="limits", **fields)
    assert "Stream NEW was created." in text
    config = nats.jetstream_manager().streams.info("NEW").config
    assert config.subjects == ["new.*", "newer.>"]
    assert (config.max_age, config.max_msgs, config.max_bytes) == (5400 * 10**9, 5, -1)
    refused = web.send("/new-stream", 400, name="X", subjects="x", max_age="soon")
    assert "Maximum age : must be a duration like 30s, 24h or 7 days, not 'soon'" in refused
    refused = web.send("/new-stream", 400, name="X", subjects="x", max_msgs="-1")
    assert "Maximum messages : must be a whole number, not '-1'" in refused
    assert "name already in use" in web.send("/new-stream", 409, name="NEW", subjects="other")


def test_an_edit_shows_the_difference_and_then_applies_it(web: Web, nats: Connection) -> None:
    fill(nats, messages=1)
    page = web.page("/streams/ORDERS/edit?as=json")
    base = hidden_fields(page)["base"]
    config = nats.jetstream_manager().streams.info("ORDERS").config
    wanted = json.dumps({"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 77})
    assert config.max_msgs == -1
    review = web.send("/streams/ORDERS/edit", config=wanted, base=base)
    assert '- "max_msgs": -1' in review
    assert '+ "max_msgs": 77' in review
    assert nats.jetstream_manager().streams.info("ORDERS").config.max_msgs == -1
    changed = area_of(page).replace('"max_msgs": -1', '"max_msgs": 77')
    assert "was changed" in web.send("/streams/ORDERS/apply", config=changed, base=base)
    assert nats.jetstream_manager().streams.info("ORDERS").config.max_msgs == 77
    # Somebody else was faster than this page.
    assert "someone else" in web.send("/streams/ORDERS/apply", 502, config=changed, base=base)
    for bad, reason in (("{", "truncated"), ('{"name": "OTHER"}', "must stay"), ("[]", "object")):
        assert reason in web.send("/streams/ORDERS/edit", 502, config=bad, base=base)


@pytest.mark.parametrize("allow_direct", [True, False])
def test_a_purge_says_first_what_it_removes(web: Web, nats: Connection, allow_direct: bool) -> None:
    fill(nats, allow_direct=allow_direct)
    text = web.send("/streams/ORDERS/purge", subject="orders.us")
    assert "It removes 10 messages of orders.us, and 30 messages stay." in text
    text = web.send("/streams/ORDERS/purge", keep=15)
    assert "It removes 25 messages, all but the newest 15, and 15 messages stay." in text
    assert "keep and below must not both be given" in web.send(
        "/streams/ORDERS/purge", 400, keep=1, below=2
    )
    assert nats.jetstream_manager().streams.info("ORDERS").state.messages == 40
    if allow_direct:
        text = web.send("/streams/ORDERS/purge", subject="orders.us", below=9)
        assert "It removes 2 messages of orders.us below sequence 9" in text
    text = web.send("/streams/ORDERS/purge-now", subject="orders.us")
    assert "10 messages of ORDERS were removed." in text
    assert nats.jetstream_manager().streams.info("ORDERS").state.messages == 30


def test_a_stream_goes_only_when_its_name_is_typed(web: Web, nats: Connection) -> None:
    fill(nats, messages=2)
    assert "It is deleted with 2 messages" in web.text("/streams/ORDERS/delete")
    assert "nothing was done" in web.send("/streams/ORDERS/delete", 400, typed="orders")
    assert "nothing was done" in web.send("/streams/ORDERS/seal", 400, typed="")
    assert "is sealed" in web.send("/streams/ORDERS/seal", typed="ORDERS")
    assert nats.jetstream_manager().streams.info("ORDERS").config.sealed
    assert "was deleted" in web.send("/streams/ORDERS/delete", typed="ORDERS")
    with pytest.raises(StreamNotFoundError):
        nats.jetstream_manager().streams.info("ORDERS")
    assert "stream not found" in web.text("/streams/ORDERS", 404)


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize("allow_direct", [True, False])
def test_messages_are_found_by_sequence_time_subject_and_text(
    web: Web, nats: Connection, allow_direct: bool
) -> None:
    fill(nats, allow_direct=allow_direct)
    path = "/streams/ORDERS/messages"
    newest = web.text(path)
    assert newest.index('{"number": 40}') < newest.index('{"number": 11}')
    assert '{"number": 10}' not in newest
    older = web.text(f"{path}?start=1")
    assert older.index('{"number": 1}') < older.index('{"number": 30}')
    assert '{"number": 31}' not in older
    assert f'href="{path}?start=31"' in web.page(f"{path}?start=1")
    only = web.text(f"{path}?subject=orders.us")
    assert only.count('{"number":') == 10
    assert only.index('{"number": 40}') < only.index('{"number": 4}')
    assert web.text(f"{path}?text=%22NUMBER%22: 33").count('{"number":') == 1
    assert '{"number": 17}' in web.text(f"{path}?text=Trace: t17")
    assert "No messages found." in web.text(f"{path}?text=nowhere")
    moment = nats.jetstream_manager().streams.get_message("ORDERS", seq=20).time
    at = quote(moment.isoformat().replace("+00:00", "Z"))
    since = web.text(f"{path}?at={at}")
    assert '{"number": 19}' not in since
    assert '{"number": 25}' in since
    assert "No messages found." in web.text(f"{path}?at=2199-01-01 00:00")
    assert "No messages found." in web.text(f"{path}?at=2999-01-01 00:00")
    assert '{"number": 1}' in web.text(f"{path}?at=0001-01-01 00:00")
    for bad, field in (("start=x", "start"), ("at=now", "at"), ("subject=a..b", "subject")):
        assert field in web.text(f"{path}?{bad}", 400)
    assert web.get(f"{path}/slide?place=0").headers["location"].startswith(f"{path}?start=1")
    assert web.get(f"{path}/slide?place=1000").headers["location"] == path


def test_a_search_in_a_long_stream_stops_and_says_where(web: Web, nats: Connection) -> None:
    fill(nats, messages=0)
    js = nats.jetstream()
    for number in range(2299):
        js.publish_async("orders.x", b"needle" if number == 2200 else b"hay")
    # Its acknowledgement comes behind all others.
    js.publish("orders.x", b"hay")
    path = "/streams/ORDERS/messages"
    page = web.page(f"{path}?start=1&text=needle")
    assert "2,000 messages searched; there may be more." in page
    assert f'href="{path}?start=2001&amp;text=needle"' in page
    assert "needle" in web.text(f"{path}?start=2001&text=needle").replace("Contains", "")


def test_a_message_is_shown_as_text_json_and_hex_and_downloaded(web: Web, nats: Connection) -> None:
    fill(nats, messages=0)
    js = nats.jetstream()
    js.publish("orders.a", b'{"b":1.10,"a":12345678901234567890}', headers={"Trace": "<b>"})
    js.publish("orders.b", bytes(range(256)))
    text = web.text("/streams/ORDERS/messages/1")
    assert '"b" : 1.10 , "a" : 12345678901234567890 }' in text
    assert "Trace <b>" in text
    assert "7b 22 62 22" in web.text("/streams/ORDERS/messages/1?as=hex")
    assert "This is not JSON." in web.text("/streams/ORDERS/messages/2?as=json")
    answer = web.get("/streams/ORDERS/messages/2/payload")
    assert answer.content == bytes(range(256))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "message 3 does not exist" in web.text("/streams/ORDERS/messages/3", 404)
    assert "was deleted" in web.send("/streams/ORDERS/messages/1/delete")
    assert nats.jetstream_manager().streams.info("ORDERS").state.messages == 1


def test_a_copy_of_a_message_is_published(web: Web, nats: Connection) -> None:
    fill(nats, messages=0)
    js = nats.jetstream()
    js.publish("orders.a", b"\xff\x00", headers={"Trace": "1", "Nats-Msg-Id": "once"})
    page = web.page("/publish?stream=ORDERS&copy=1")
    assert "Trace: 1" in page
    assert "once" not in page
    text = web.send(
        "/publish", stream="ORDERS", copy=1, subject="orders.b", headers="Trace: 1\r\nMore: x"
    )
    assert "Stored as message 2 of ORDERS." in text
    copied = nats.jetstream_manager().streams.get_message("ORDERS", seq=2)
    assert (copied.subject, copied.data) == ("orders.b", b"\xff\x00")
    assert copied.headers["More"] == "x"
    assert "Stored as message 3" in web.send("/publish", subject="orders.c", payload="gr\u00fcn")
    assert "subject" in web.send("/publish", 400, subject="a.*", payload="")
    assert "line 2" in web.send("/publish", 400, subject="orders.d", headers="A: b\nnothing")


# ---------------------------------------------------------------------- consumers


def test_a_consumer_is_reset_and_deleted(web: Web, nats: Connection) -> None:
    fill(nats, messages=3)
    consumers = nats.jetstream_manager().consumers
    consumers.add("ORDERS", durable_name="c", ack_policy="explicit")
    for message in nats.jetstream().consumers.get("ORDERS", "c").fetch(3):
        message.ack_sync()
    path = "/streams/ORDERS/consumers/c"
    assert "was reset to sequence 2" in web.send(f"{path}/reset", seq=2)
    wait_for(lambda: consumers.info("ORDERS", "c").num_pending == 2)
    assert "nothing was done" in web.send(f"{path}/delete", 400, typed="x")
    assert "was deleted" in web.send(f"{path}/delete", typed="c")
    with pytest.raises(ConsumerNotFoundError):
        consumers.info("ORDERS", "c")
    assert "consumer not found" in web.text(path, 404)


# ---------------------------------------------------------------------- damage


def test_lost_messages_are_named(tmp_path: Path) -> None:
    # nats-server gives up the rest of a damaged block, and tells of no loss: only ours is asked.
    flags = ["-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p", "-1"]
    first = ServerProcess("tradewind", flags).wait_ready()
    with tradewind.sync.connect(first.url) as connection:
        connection.jetstream_manager().streams.add(name="S", subjects=["s"])
        for number in range(20):
            connection.jetstream().publish("s", f"message {number:03}")
    first.stop()
    block = next(tmp_path.rglob("1.blk"))
    data = bytearray(block.read_bytes())
    data[data.index(b"message 007") + 5] ^= 1
    block.write_bytes(data)
    for index in tmp_path.rglob("index.db"):
        index.unlink()
    second = ServerProcess("tradewind", flags).wait_ready()
    settings = DashboardSettings(ConnectOptions(servers=second.url), port=0)
    with connected_dashboard(settings) as dashboard:
        web = Web(dashboard.url)
        assert "1 message can no longer be read: sequence 8." in web.text("/streams/S")
        assert "lost messages" in web.text("/streams")
        assert "message 8 does not exist" in web.text("/streams/S/messages/8", 404)
        web.client.close()
    second.stop()


# ---------------------------------------------------------------------- hostile content


def test_hostile_names_subjects_headers_and_payloads_are_text(web: Web, nats: Connection) -> None:
    streams = nats.jetstream_manager().streams
    hostile = "<u>x"
    streams.add(
        name="H",
        subjects=[f"{hostile}.>"],
        description=SCRIPT,
        allow_direct=True,
        metadata={SCRIPT: SCRIPT},
    )
    js = nats.jetstream()
    js.publish(f"{hostile}.a", SCRIPT, headers={"X": SCRIPT, '"><img/src=x': "1"})
    nats.jetstream_manager().consumers.add(
        "H", durable_name="c<q", description=SCRIPT, filter_subject=f"{hostile}.a"
    )
    consumer = quote("c<q", safe="")
    paths = [
        "/streams/H",
        "/streams/H/config",
        "/streams/H/subjects",
        "/streams/H/edit",
        "/streams/H/messages",
        f"/streams/H/messages?text={quote(SCRIPT)}",
        f"/streams/H/messages?subject={quote(hostile)}.a",
        "/streams/H/messages/1",
        "/publish?stream=H&copy=1",
        "/streams/H/consumers",
        f"/streams/H/consumers/{consumer}",
        f"/streams?search={quote(SCRIPT)}",
        "/consumers",
    ]
    for path in paths:
        page = web.page(path)
        assert page.count("<script") == 1, path
        assert "<u>" not in page, path
        assert "<img/" not in page, path
        assert "<q" not in page, path
    assert SCRIPT in web.text("/streams/H/messages/1")
    for path in (f"/streams/{quote(SCRIPT, safe='')}", "/streams/a.b", "/streams/H/messages/0"):
        assert web.page(path, web.get(path).status_code).count("<script") == 1


# ---------------------------------------------------------------------- connections


def test_connections_say_who_is_there(web: Web, nats: Connection) -> None:
    nats.flush()
    text = web.text("/connections")
    assert "of this account" in text
    assert "tradewind dashboard" in text
    assert "127.0.0.1:" in text
    assert "sort" in web.text("/connections?sort=shoe", 400)
    for order in ("pending", "msgs_to", "msgs_from", "subs"):
        assert "tradewind dashboard" in web.text(f"/connections?sort={order}")


def test_a_stream_that_takes_nothing_says_why(web: Web, nats: Connection) -> None:
    """What `tradewind stream why` prints is on the page, with the command that helps."""
    streams = nats.jetstream_manager().streams
    streams.add(name="FULL", subjects=["full"], max_msgs=1, discard="new")
    nats.jetstream().publish("full", b"1")
    wait_for(lambda: "Why?" in web.text("/streams/FULL"))
    page = web.page("/streams/FULL")
    assert 'class="card why stuck"' in page
    assert "<code>tradewind stream" in page
    streams.purge("FULL")
    wait_for(lambda: "Why?" not in web.text("/streams/FULL"))


def test_one_search_finds_streams_consumers_buckets_and_stores(web: Web, nats: Connection) -> None:
    fill(nats, messages=0)
    nats.jetstream().kv.create("orders")
    nats.jetstream().objects.create("orders-films")
    nats.jetstream_manager().consumers.add("ORDERS", durable_name="orders-packer")
    wait_for(lambda: "orders-packer" in web.text("/search?search=rders"))
    text = web.text("/search?search=rders")
    assert re.search(r"Streams ORDERS Buckets orders Stores orders-films Consumers", text)
    assert web.get("/search?search=ORDERS").headers["location"] == "/streams/ORDERS"
    assert web.get("/search?search=orders").headers["location"] == "/kv/orders"
    target = "/streams/ORDERS/consumers/orders-packer"
    assert web.get("/search?search=orders-packer").headers["location"] == target
    assert "No stream, consumer, bucket or store has 'zzz'" in web.text("/search?search=zzz")
    assert web.get("/search?search=").headers["location"] == "/streams"


def test_the_font_comes_from_the_dashboard_and_its_pages_may_load_it(web: Web) -> None:
    assert '@font-face { font-family: "Manrope"' in web.get("/static/style.css").text
    answer = web.get("/static/manrope.ttf")
    assert answer.headers["content-type"] == "font/ttf"
    assert answer.content[:4] == b"\0\1\0\0"
    assert "font-src 'self'" in answer.headers["content-security-policy"]


def test_a_stream_has_its_description_under_its_name(web: Web, nats: Connection) -> None:
    fill(nats, messages=0, description=f"All orders {SCRIPT}")
    wait_for(lambda: f"ORDERS All orders {SCRIPT}" in web.text("/streams/ORDERS"))
