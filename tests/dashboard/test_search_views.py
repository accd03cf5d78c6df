"""Searches through whole streams, saved results, decoded payloads, and requests with replies."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dashboard.conftest import Web, connected_dashboard, hidden_fields, text_of
from harness import ServerProcess, wait_for
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings

if TYPE_CHECKING:
    from tradewind.sync import Connection

PATH = "/streams/ORDERS/search"


def fill(nats: Connection, *, messages: int = 60, allow_direct: bool = True) -> None:
    nats.jetstream_manager().streams.add(
        name="ORDERS", subjects=["orders.>"], allow_direct=allow_direct
    )
    js = nats.jetstream()
    for number in range(1, messages + 1):
        subject = f"orders.{'eu' if number % 4 else 'us'}"
        body = {"number": number, "lines": [{"sku": f"s{number % 5}"}]}
        js.publish(subject, json.dumps(body), headers={"Trace": f"t{number % 3}"})


def begin(web: Web, status: int = 303, **fields: Any) -> str:
    """Begin a search; the address of its page."""
    data = {"csrf": web.token("/"), **fields}
    answer = web.client.post(PATH, data=data)
    assert answer.status_code == status, text_of(answer.text)
    return answer.headers["location"] if status == 303 else answer.text


def ended(web: Web, address: str) -> str:
    """The page of a search that has ended."""
    wait_for(lambda: "searching" not in state_of(web, address))
    return web.page(address)


def state_of(web: Web, address: str) -> str:
    found = re.search(r'id="search-state"[^>]*>(.*?)</p>', web.page(address), re.DOTALL)
    assert found
    return text_of(found[1])


def sequences(page: str) -> list[int]:
    return [int(each) for each in re.findall(r'href="/streams/ORDERS/messages/(\d+)"', page)]


@pytest.mark.parametrize("allow_direct", [True, False])
def test_a_whole_stream_is_searched_by_conditions(
    web: Web, nats: Connection, allow_direct: bool
) -> None:
    fill(nats, allow_direct=allow_direct)
    page = ended(web, begin(web, json='number > 10 and lines[*].sku = "s0"', header="Trace = t0"))
    assert sequences(page) == [60, 45, 30, 15]
    assert "done towards older, at sequence 1" in text_of(page)
    assert "60 messages searched" in text_of(page)
    page = ended(web, begin(web, json="number >= 50", subject="orders.us", way="newer"))
    assert sequences(page) == [52, 56, 60]
    assert "15 messages searched" in text_of(page)
    page = ended(web, begin(web, text="T1", way="newer", **{"from": 50}))
    assert sequences(page) == [52, 55, 58]
    page = ended(web, begin(web, text="nowhere"))
    assert "No messages found." in text_of(page)
    page = begin(web, 400, json="a = ", header="A B", subject="a..b", text="kept")
    assert 'value="kept"' in page
    for name in ("json", "header", "subject"):
        assert f'id="in-{name}-error"' in page
    assert "This search has ended" in web.text(f"{PATH}?id=unknown")
    assert web.get("/streams/NOTHING/search").status_code == 200
    assert "stream not found" in web.send("/streams/NOTHING/search", 404)
    # The page of messages leads to it with the same conditions.
    assert f"{PATH}?subject=orders.us&amp;text=x" in web.page(
        "/streams/ORDERS/messages?subject=orders.us&text=x"
    )


def test_found_messages_are_saved_as_files(web: Web, nats: Connection) -> None:
    fill(nats, messages=12)
    address = begin(web, json="number > 9")
    page = ended(web, address)
    links = re.findall(r'href="([^"]*/export[^"]*)"', page)
    assert len(links) == 3
    lines = web.page(links[0].replace("&amp;", "&")).splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [12, 11, 10]
    assert web.page(links[1].replace("&amp;", "&")).startswith("stream,sequence,time,subject,")
    assert web.get(links[2].replace("&amp;", "&")).content[:4] == b"PAR1"
    assert "must be one of" in web.text(f"{PATH}/export?{address.partition('?')[2]}&format=x", 502)


def test_a_read_only_dashboard_searches(server: ServerProcess, web: Web, nats: Connection) -> None:
    fill(nats, messages=5)
    settings = DashboardSettings(ConnectOptions(servers=server.url), port=0, is_read_only=True)
    with connected_dashboard(settings) as made:
        reader = Web(made.url)
        with reader.client:
            assert sequences(ended(reader, begin(reader, json="number = 3"))) == [3]
            token = reader.token("/")
            answer = reader.client.post("/request", data={"csrf": token, "subject": "a"})
            assert answer.status_code == 403


def test_a_payload_is_shown_with_colours_and_decoded(web: Web, nats: Connection) -> None:
    nats.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"])
    js = nats.jetstream()
    js.publish("orders.a", msgspec.msgpack.encode({"item": "p\u00e4r", "n": [1, 2]}))
    js.publish("orders.a", b'{"a": "\\u00e9", "b": 1.50}')
    message = "/streams/ORDERS/messages"
    text = web.text(f"{message}/1?format=msgpack")
    assert '"item" : "pär"' in text
    assert "is not MessagePack" in web.text(f"{message}/2?format=msgpack")
    assert "Name the bucket" in web.text(f"{message}/1?format=avro")
    assert "must be one of" in web.text(f"{message}/1?format=os:system")
    assert "does not exist" in web.text(f"{message}/1?format=avro&schema=nowhere")
    page = web.page(f"{message}/2")
    assert '<span class="key">&quot;a&quot;</span>: <span class="string">&quot;é&quot;' in page
    assert "1.50" in text_of(page)
    schema = {"type": "record", "name": "R", "fields": [{"name": "item", "type": "string"}]}
    entry = {
        "subject": "orders.>",
        "format": "avro",
        "version": 1,
        "schema": schema,
    }
    js.kv.create("schemas").put("orders", json.dumps(entry))
    js.publish("orders.a", b"\x08pear")
    assert '"item" : "pear"' in web.text(f"{message}/3?format=avro&schema=schemas")


def test_a_request_shows_its_replies(web: Web, nats: Connection) -> None:
    def answer(message: Any) -> None:
        message.respond(b'{"echo": "' + message.data + b'"}', headers={"X": message.headers["A"]})

    subscriptions = [nats.subscribe("svc.echo", callback=answer) for _ in range(2)]
    nats.flush()
    fields = {"subject": "svc.echo", "headers": "A: <1>", "payload": "hi"}
    text = web.send("/request", **fields)
    assert "1 reply." in text
    assert '"echo" : "hi"' in text
    assert "<1>" in text
    assert "2 replies." in web.send("/request", most=2, wait="10s", **fields)
    assert "Nobody answers on svc.none" in web.send("/request", subject="svc.none")
    for bad, name in (
        ({"subject": "a.*"}, "subject"),
        ({"subject": "a", "wait": "5m"}, "wait"),
        ({"subject": "a", "most": "1000"}, "most"),
        ({"subject": "a", "headers": "no colon"}, "headers"),
    ):
        page = web.client.post("/request", data={"csrf": web.token("/"), **bad})
        assert page.status_code == 400
        assert f'id="in-{name}-error"' in page.text
        assert hidden_fields(page.text)["csrf"]
    for each in subscriptions:
        each.unsubscribe()
