"""Consumers on both servers: made, edited after a look, and why they do not move."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.conftest import Web, area_of, hidden_fields
from harness import wait_for
from tradewind.client.api_errors import ConsumerNotFoundError

if TYPE_CHECKING:
    from tradewind.sync import Connection

STATE = re.compile(r'state-badge \w+"[^>]*>(\w+)<')
PATH = "/streams/ORDERS/consumers"


def fill(nats: Connection, messages: int = 40) -> None:
    nats.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"], storage="memory")
    js = nats.jetstream()
    for number in range(messages):
        js.publish_async(f"orders.{number % 4}", str(number))
    js.publish("orders.last", b"")


def add(nats: Connection, name: str, **settings: Any) -> None:
    settings = {"ack_policy": "explicit", **settings}
    nats.jetstream_manager().consumers.add("ORDERS", durable_name=name, **settings)


def reason(web: Web, name: str) -> str:
    """The sentence about a consumer, with what to do."""
    page = web.page(f"{PATH}/{name}")
    found = re.search(r'id="reason">(.*?)</p>(?:<p class="faint">(.*?)</p>)?', page)
    assert found
    return unescape(f"{found[1]} {found[2] or ''}").strip()


# ---------------------------------------------------------------------- each reason


def test_paused(web: Web, nats: Connection) -> None:
    fill(nats)
    add(nats, "c0")
    web.send(f"{PATH}/c0/pause", duration="10m")
    wait_for(lambda: reason(web, "c0").startswith("It is paused until 20"))
    assert "another 9 minutes" in reason(web, "c0")
    assert reason(web, "c0").endswith("Resume it if it should deliver before that.")
    wait_for(lambda: "paused c0" in web.text("/consumers"))
    assert "It was resumed." in web.send(f"{PATH}/c0/resume")
    assert "duration" in web.send(f"{PATH}/c0/pause", 400, duration="soon")


def test_no_client_asks(web: Web, nats: Connection) -> None:
    fill(nats)
    add(nats, "c1")
    text = "41 messages are waiting, and no client is requesting them."
    wait_for(lambda: reason(web, "c1").startswith(text))


def test_max_ack_pending_of_a_pull_consumer(web: Web, nats: Connection) -> None:
    fill(nats)
    add(nats, "c2", max_ack_pending=5)
    taken = list(nats.jetstream().consumers.get("ORDERS", "c2").fetch(5))
    assert len(taken) == 5
    begin = "5 messages are delivered and not acknowledged, which is all that"
    wait_for(lambda: reason(web, "c2").startswith(begin))
    text = reason(web, "c2")
    assert "the oldest is sequence 1, stored " in text
    assert "ago, delivered once." in text


def test_max_ack_pending_of_a_push_consumer_names_its_clients(web: Web, nats: Connection) -> None:
    fill(nats)
    with nats.subscribe("to.<u>me") as subscription:
        add(nats, "c3", deliver_subject="to.<u>me", max_ack_pending=3)
        assert len([subscription.next(20) for _ in range(3)]) == 3
        wait_for(lambda: "which is all that" in reason(web, "c3"))
        text = reason(web, "c3")
        assert re.search(r"held by .+ \(127\.0\.0\.1:\d+\); the oldest is sequence 1", text)
        assert "<u>" not in web.page(f"{PATH}/c3")


def test_the_filter_matches_nothing(web: Web, nats: Connection) -> None:
    fill(nats)
    add(nats, "one", filter_subject="orders.mars")
    add(nats, "more", filter_subjects=["orders.mars", "orders.moon.>"])
    add(nats, "met", filter_subjects=["orders.mars", "orders.1"], deliver_policy="new")
    # What is known of the stream may be of the moment before it had messages.
    text = "No message of the stream matches its filter (orders.mars)."
    wait_for(lambda: reason(web, "one").startswith(text))
    assert "matches its filter (orders.mars, orders.moon.>)" in reason(web, "more")
    assert "filter" not in reason(web, "met")


def test_no_interest_on_the_deliver_subject(web: Web, nats: Connection) -> None:
    fill(nats)
    add(nats, "c5", deliver_subject="nobody", deliver_group="q")
    begin = "Nobody subscribes to nobody, where it delivers."
    wait_for(lambda: reason(web, "c5").startswith(begin))
    assert "in the queue group q." in reason(web, "c5")


def test_the_oldest_message_with_its_age_and_attempts(web: Web, nats: Connection) -> None:
    fill(nats, 1)
    add(nats, "c6", max_deliver=10)
    consumer = nats.jetstream().consumers.get("ORDERS", "c6")
    first, second = consumer.fetch(2)
    second.ack_sync()
    wait_for(lambda: "the oldest is sequence 1, stored " in reason(web, "c6"))
    assert "ago, delivered once." in reason(web, "c6")
    assert "They are redelivered after 30 seconds, at most 10 times." in reason(web, "c6")
    for _ in range(2):
        first.nak()
        (first,) = consumer.fetch(1)
    wait_for(lambda: "ago, delivered at most 4 times, and 1 of them" in reason(web, "c6"))
    # Nothing behind it was delivered: then it is known exactly.
    add(nats, "last", deliver_policy="last", ack_policy="explicit")
    consumer = nats.jetstream().consumers.get("ORDERS", "last")
    for _ in range(3):
        (message,) = consumer.fetch(1)
        message.nak()
    (message,) = consumer.fetch(1)
    wait_for(lambda: "delivered 4 times" in reason(web, "last"))


def test_a_consumer_that_moves_says_so(web: Web, nats: Connection) -> None:
    fill(nats)
    add(nats, "c7")
    web.text(f"{PATH}/c7")
    consumer = nats.jetstream().consumers.get("ORDERS", "c7")

    def moves() -> bool:
        for message in consumer.fetch(1):
            message.ack_sync()
        nats.jetstream().publish("orders.more", b"")
        return reason(web, "c7").startswith("It is moving: about ")

    wait_for(moves)
    page = web.text(f"{PATH}/c7")
    assert "Position in the stream delivered up to" in page
    assert "acknowledged up to" in page
    # The rate is in the list, too.
    web.text(PATH)

    def has_rate() -> bool:
        for message in consumer.fetch(1):
            message.ack_sync()
        nats.jetstream().publish("orders.more", b"")
        found = re.search(r"c7 pull, durable [\d,]+ ([\d.k]+) ", web.text(PATH))
        return found is not None and float(found[1]) > 0

    wait_for(has_rate)


# ---------------------------------------------------------------------- changes


def test_a_consumer_is_made_by_the_form(web: Web, nats: Connection) -> None:
    fill(nats, 1)
    assert "New consumer" in web.text(PATH)
    fields = {
        "name": "packer",
        "filter_subjects": "orders.1, orders.2",
        "ack_policy": "explicit",
        "ack_wait": "45s",
        "max_deliver": 7,
        "max_ack_pending": 20,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 2,
    }
    text = web.send("/streams/ORDERS/new-consumer", **fields)
    assert "Consumer packer was created." in text
    config = nats.jetstream_manager().consumers.info("ORDERS", "packer").config
    assert config.filter_subjects == ["orders.1", "orders.2"]
    assert (config.ack_wait, config.max_deliver, config.max_ack_pending) == (45 * 10**9, 7, 20)
    assert config.opt_start_seq == 2
    new = "/streams/ORDERS/new-consumer"
    refused = web.send(new, 400, name="x", ack_wait="soon")
    assert "Redeliver if not acknowledged within : must be a duration" in refused
    assert "Name : must not be empty" in web.send(new, 400, name=" ")
    assert "must be subjects joined by commas" in web.send(
        new, 400, name="x", filter_subjects="a..b"
    )
    assert "The server says" in web.send(new, 409, name="packer", max_deliver=8)
    text = web.send(
        new, name="pushed", ack_policy="none", deliver_subject="d", filter_subjects="orders.1"
    )
    assert "Consumer pushed was created." in text


@pytest.mark.parametrize("filter_subject", ["", "orders.1"])
def test_an_edit_shows_the_difference_first(
    web: Web, nats: Connection, filter_subject: str
) -> None:
    fill(nats, 1)
    add(nats, "c9", max_ack_pending=5, filter_subject=filter_subject, metadata={"a": "<b>1"})
    page = web.page(f"{PATH}/c9/edit?as=json")
    base = hidden_fields(page)["base"]
    text = area_of(page)
    assert json.loads(text)["max_ack_pending"] == 5
    changed = text.replace('"max_ack_pending": 5', '"max_ack_pending": 9')
    review = web.send(f"{PATH}/c9/edit", config=changed, base=base)
    assert '- "max_ack_pending": 5' in review
    assert '+ "max_ack_pending": 9' in review
    consumers = nats.jetstream_manager().consumers
    assert consumers.info("ORDERS", "c9").config.max_ack_pending == 5
    assert "Consumer c9 was changed." in web.send(f"{PATH}/c9/apply", config=changed, base=base)
    config = consumers.info("ORDERS", "c9").config
    assert (config.max_ack_pending, config.filter_subject) == (9, filter_subject)
    assert config.metadata["a"] == "<b>1"
    # Somebody else was faster than this page; and what cannot be is refused in words.
    assert "someone else" in web.send(f"{PATH}/c9/apply", 502, config=changed, base=base)
    base = hidden_fields(web.page(f"{PATH}/c9/edit"))["base"]
    assert "Nothing would change." in web.send(f"{PATH}/c9/edit", config=changed, base=base)
    renamed = changed.replace('"durable_name": "c9"', '"durable_name": "d"')
    assert "must stay 'c9'" in web.send(f"{PATH}/c9/edit", 502, config=renamed, base=base)
    other = changed.replace('"ack_policy": "explicit"', '"ack_policy": "none"')
    assert "The server says" in web.send(f"{PATH}/c9/apply", 409, config=other, base=base)
    assert "consumer not found" in web.text(f"{PATH}/nobody/edit", 404)
    assert "<b>1" not in web.page(f"{PATH}/c9/edit")


def test_deleted_consumers_are_gone(web: Web, nats: Connection) -> None:
    fill(nats, 1)
    add(nats, "c10")
    assert "was deleted" in web.send(f"{PATH}/c10/delete", typed="c10")
    with pytest.raises(ConsumerNotFoundError):
        nats.jetstream_manager().consumers.info("ORDERS", "c10")


# ---------------------------------------------------------------------- states


def test_the_overview_names_what_needs_attention(web: Web, nats: Connection) -> None:
    assert "All is well." in wait_for(lambda: _overview(web))
    streams = nats.jetstream_manager().streams
    streams.add(name="FULL", subjects=["full"], max_msgs=1, discard="new")
    nats.jetstream().publish("full", b"the only one")
    fill(nats)
    add(nats, "idle")
    web.send(f"{PATH}/idle/pause", duration="10m")
    text = wait_for(lambda: "Needs attention" in _overview(web) and web.text("/"))
    assert "Stream FULL It is full: it has 1 message of 1 (max_msgs)" in text
    wait_for(lambda: "Consumer idle of ORDERS It is paused until" in web.text("/"))
    # The states come first in the tables, the worst on top.
    rows = web.page("/streams").split("<tr>")[2:]
    assert [state for row in rows for state in STATE.findall(row)] == ["stopped", "ok"]
    assert "FULL" in rows[0]


def _overview(web: Web) -> str:
    text = web.text("/")
    return text if "All is well." in text or "Needs attention" in text else ""


def test_consumers_of_all_streams_come_in_pages_sorted_by_any_column(
    web: Web, nats: Connection
) -> None:
    streams = nats.jetstream_manager().streams
    for number in range(2):
        streams.add(name=f"S{number}", subjects=[f"s{number}"], storage="memory")
        for index in range(30):
            name = f"c{number}-{index:02}"
            nats.jetstream_manager().consumers.add(f"S{number}", durable_name=name)
    nats.jetstream().publish("s1", b"1")
    wait_for(lambda: "1 to 50 of 60" in web.text("/consumers"))
    wait_for(lambda: "c1-29" in web.text("/consumers?first=50"))
    assert "51 to 60 of 60" in web.text("/consumers?first=50")
    by_lag = wait_for(
        lambda: (found := web.text("/consumers?sort=-behind")) and "c1-29" in found and found
    )
    assert by_lag.index("c1-00") < by_lag.index("c1-29") < by_lag.index("c0-00")
    assert web.text("/consumers?sort=-name").index("c1-29") < 400
    assert "1 to 30" not in web.text("/consumers?search=s0")
    assert "c1-00" not in web.text("/consumers?search=s0")
    # An order that does not exist is the usual one.
    assert "c0-00" in web.text("/consumers?sort=nonsense")
