"""Dead letters: found, listed, shown, changed, sent back and removed; and servers without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tradewind
import tradewind.sync
from dashboard.conftest import Web, connected_dashboard, hidden_fields
from harness import ServerProcess, wait_for
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.data import dead_letter_data
from tradewind.dashboard.web.serving import Dashboard, DashboardSettings

if TYPE_CHECKING:
    from tradewind.sync import Connection

only_tradewind = pytest.mark.parametrize("server", ["tradewind"], indirect=True)
METADATA = {"tradewind.dead_letter.stream": "DEAD"}
HOSTILE = "<script>document.title='taken'</script>"


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what has changed is soon found."""
    monkeypatch.setattr(dead_letter_data, "FIND_SECONDS", 1.0)


def bury(nats: Connection, *payloads: bytes, consumer: str = "billing") -> None:
    """Have messages given up, each with its own payload."""
    manager, js = nats.jetstream_manager(), nats.jetstream()
    if "DEAD" not in manager.streams.names().all():
        manager.streams.add(name="DEAD", subjects=["dead.>"], allow_direct=True)
        manager.streams.add(name="ORDERS", subjects=["orders.>"])
    info = manager.consumers.add(
        "ORDERS", durable_name=consumer, ack_policy="explicit", metadata=METADATA
    )
    for index, payload in enumerate(payloads):
        js.publish(f"orders.{index}", payload, headers={"Colour": "blue"})
        js.consumers.get("ORDERS", info.name).next().term("no such fruit")
    wait_for(lambda: len(letters(nats)) == len(payloads))


def letters(nats: Connection) -> list[bytes]:
    return [letter.data for letter in nats.jetstream().dead_letters.letters("DEAD")]


@pytest.mark.parametrize("server", ["official"], indirect=True)
def test_another_server_has_no_dead_letters_of_its_own_kind(web: Web, nats: Connection) -> None:
    nats.jetstream_manager().streams.add(name="DEAD", subjects=["dead.>"])
    nats.jetstream().publish("dead.x", b"", headers={"Tradewind-Dead-Letter-Stream": "ORDERS"})
    assert "This server does not store dead letters" in web.text("/dead-letters")
    # What was copied there is shown and can be removed; to send it back needs a transaction.
    listed = web.text("/dead-letters/DEAD")
    assert "does not store dead letters" in listed
    assert "Redrive" not in listed
    assert "Send back" not in web.text("/dead-letters/DEAD/1")
    for path in ("1/redrive", "1/edit", "redrive"):
        assert "need a Tradewind server" in web.send(f"/dead-letters/DEAD/{path}", 404)
    assert "was removed" in web.send("/dead-letters/DEAD/1/remove")


@only_tradewind
def test_streams_are_found_by_their_consumers_and_by_what_they_hold(
    web: Web, nats: Connection
) -> None:
    assert "No consumer has a stream" in web.text("/dead-letters")
    bury(nats, b"two aples")
    manager = nats.jetstream_manager()
    manager.streams.add(name="OLD", subjects=["old"])
    nats.jetstream().publish("old", b"", headers={"Tradewind-Dead-Letter-Stream": "GONE"})
    manager.streams.add(name="GONE", subjects=["gone"])
    wait_for(lambda: "OLD" in web.text("/dead-letters"), seconds=90)
    text = web.text("/dead-letters")
    assert "DEAD 1 ORDERS > billing" in text
    assert "GONE" not in text


@only_tradewind
def test_a_stream_that_consumers_name_and_that_is_gone_is_said(web: Web, nats: Connection) -> None:
    bury(nats)
    nats.jetstream_manager().streams.delete("DEAD")
    wait_for(lambda: "does not exist: its consumers keep" in web.text("/dead-letters"), seconds=90)


@only_tradewind
def test_the_list_is_filtered_by_consumer_reason_and_subject(web: Web, nats: Connection) -> None:
    bury(nats, b"two aples", b"a paer")
    text = web.text("/dead-letters/DEAD")
    assert text.index("a paer") < text.index("two aples")
    assert "ORDERS > billing term no such fruit 1 orders.0" in text
    assert "No dead letters found" in web.text("/dead-letters/DEAD?reason=max_deliver")
    assert "No dead letters found" in web.text("/dead-letters/DEAD?consumer=packer")
    assert "No dead letters found" in web.text("/dead-letters/DEAD?origin=DEAD")
    text = web.text("/dead-letters/DEAD?consumer=billing&reason=term&subject=*.1")
    assert "a paer" in text
    assert "two aples" not in text
    assert "reason must be max_deliver or term or expired" in web.text(
        "/dead-letters/DEAD?reason=bored", 400
    )
    assert "subject must be tokens joined by dots" in web.text(
        "/dead-letters/DEAD?subject=a..b", 400
    )
    assert "The server says" in web.text("/dead-letters/NOBODY", 404)


@only_tradewind
def test_one_is_shown_edited_and_sent_back(web: Web, nats: Connection) -> None:
    bury(nats, b"\ntwo aples")
    text = web.text("/dead-letters/DEAD/1")
    for part in ("term: no such fruit", "ORDERS > billing", "orders.0", "Colour blue", "two aples"):
        assert part in text
    assert "Attempt Delivered To client 1 20" in text
    assert "0a 74 77 6f" in web.text("/dead-letters/DEAD/1?as=hex")
    # A browser leaves out the first line end of a field.
    assert ">\n\ntwo aples</textarea>" in web.page("/dead-letters/DEAD/1/edit")
    path = "/dead-letters/DEAD/1/edit"
    same = web.send(path, headers="Colour: blue", payload="\ntwo aples")
    assert "Nothing was changed." in same
    assert "headers, line 1" in web.send(path, 400, headers="no colon", payload="x")
    changed = web.send(path, headers="Colour: red\nSize: 7", payload="two apples")
    assert "Dead letter 1 was changed, and is now 2." in changed
    assert "Colour red Size 7" in changed
    assert "message 1 does not exist or was removed" in web.text(path, 404)
    assert "to must be tokens joined by dots" in web.send(
        "/dead-letters/DEAD/2/redrive", 400, to="a *"
    )
    sent = web.send("/dead-letters/DEAD/2/redrive", to="orders.0")
    assert "Dead letter 2 was sent to orders.0, where it is message 2." in sent
    message = nats.jetstream().consumers.get("ORDERS", "billing").next()
    assert (message.data, message.headers["Colour"]) == (b"two apples", "red")
    assert letters(nats) == []


@only_tradewind
def test_one_goes_back_to_its_consumer_only(web: Web, nats: Connection) -> None:
    bury(nats, b"a")
    assert "Only to the consumer that gave up on it" in web.text("/dead-letters/DEAD/1/redrive")
    sent = web.send("/dead-letters/DEAD/1/redrive", consumer="1", to="ignored")
    assert "ORDERS > billing delivers dead letter 1 again." in sent
    assert nats.jetstream().consumers.get("ORDERS", "billing").next().data == b"a"
    assert nats.jetstream_manager().streams.info("ORDERS").state.last_seq == 1


@only_tradewind
def test_a_payload_that_is_no_text_survives_an_edit_of_its_headers(
    web: Web, nats: Connection
) -> None:
    bury(nats, b"\x00\xff\r\n")
    assert "is not text and is left unchanged" in web.text("/dead-letters/DEAD/1/edit")
    web.send("/dead-letters/DEAD/1/edit", headers="Colour: red", payload="forged")
    (letter,) = nats.jetstream().dead_letters.letters("DEAD")
    assert (letter.data, letter.headers["Colour"]) == (b"\x00\xff\r\n", "red")


@only_tradewind
def test_many_are_sent_back_with_a_filter_a_rate_and_progress(web: Web, nats: Connection) -> None:
    bury(nats, b"a", b"b", b"c")
    asked = web.page("/dead-letters/DEAD/redrive?subject=orders.1")
    assert hidden_fields(asked)["subject"] == "orders.1"
    for field in ("rate", "limit"):
        assert f"{field} must be " in web.send("/dead-letters/DEAD/redrive", 400, **{field: "-1"})
    assert "They are being sent back." in web.send("/dead-letters/DEAD/redrive", subject="orders.1")
    wait_for(lambda: letters(nats) == [b"a", b"c"])
    wait_for(lambda: "orders.1 1 dead letter done" in web.text("/dead-letters/DEAD"))
    # One that takes long is stopped; what it has sent stays sent.
    web.send("/dead-letters/DEAD/redrive", rate="0.001")
    wait_for(lambda: "all 1 dead letter Stop" in web.text("/dead-letters/DEAD"))
    page = web.page("/dead-letters/DEAD")
    assert '<progress value="' in page
    number = page.partition('action="/redrives/')[2][:16]
    assert "It is stopped; 1 dead letter was sent back." in web.send(f"/redrives/{number}/stop")
    assert "all 1 dead letter stopped" in web.text("/dead-letters/DEAD")
    assert "no longer known" in web.send("/redrives/none/stop", 400)
    assert letters(nats) == [b"c"]


@only_tradewind
def test_what_cannot_be_sent_back_stays_and_says_why(web: Web, nats: Connection) -> None:
    bury(nats, b"a")
    nats.jetstream_manager().streams.delete("ORDERS")
    web.send("/dead-letters/DEAD/1/redrive", 404)
    web.send("/dead-letters/DEAD/redrive")
    wait_for(lambda: "failed" in web.text("/dead-letters/DEAD"))
    assert "publishes[0]: no stream" in web.text("/dead-letters/DEAD")
    assert letters(nats) == [b"a"]


@only_tradewind
def test_hostile_letters_are_text(web: Web, nats: Connection) -> None:
    bury(nats)
    forged = {"Reason": HOSTILE, "Detail": HOSTILE, "Stream": HOSTILE, "Consumer": HOSTILE}
    forged |= {"Subject": HOSTILE, "Sequence": "9" * 5000, "Attempts": HOSTILE}
    headers = {f"Tradewind-Dead-Letter-{name}": value for name, value in forged.items()}
    nats.jetstream().publish("dead.x", HOSTILE, headers=headers | {"X": HOSTILE})
    for path in ("", "/1", "/1/edit", "/1/redrive", "/1/remove", f"/redrive?consumer={HOSTILE}"):
        assert "<script>document" not in web.page(f"/dead-letters/DEAD{path}")
    nats.jetstream().publish("dead.y", b"plain")
    assert "Message 2 of DEAD is not a dead letter." in web.text("/dead-letters/DEAD/2", 404)
    assert HOSTILE in web.text("/dead-letters/DEAD/1")


CONFIG = """
listen: "127.0.0.1:-1"
jetstream {{ store_dir: "{folder}" }}
accounts {{ A {{ jetstream: enabled, users: [
  {{user: all, password: a}}
  {{user: reader, password: b, permissions: {{
    publish: ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.>",
      "$JS.API.CONSUMER.LIST.>", "$JS.API.STREAM.MSG.GET.DEAD", "$JS.API.DIRECT.GET.DEAD"]
    subscribe: ["_INBOX.>"]
  }}}}
] }} }}
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ServerProcess]:
    path = tmp_path / "server.conf"
    path.write_text(CONFIG.format(folder=tmp_path / "store"))
    process = ServerProcess("tradewind", ["-c", str(path)]).wait_ready()
    try:
        with tradewind.sync.connect(process.url, user="all", password="a") as nats:
            bury(nats, b"two aples")
        yield process
    finally:
        process.stop()


@contextmanager
def visit(dashboard: Dashboard) -> Iterator[Web]:
    web = Web(dashboard.url)
    with web.client:
        yield web


def test_a_login_without_permission_sees_what_it_may_and_is_told_the_rest(
    guarded: ServerProcess,
) -> None:
    options = ConnectOptions(servers=guarded.url, user="reader", password="b")
    with (
        connected_dashboard(DashboardSettings(options, port=0)) as dashboard,
        visit(dashboard) as web,
    ):
        wait_for(lambda: "DEAD 1 ORDERS > billing" in web.text("/dead-letters"), seconds=90)
        assert "may not see or do this ($JS.API.STREAM.MSG.GET.ORDERS)" in web.text("/dead-letters")
        assert "two aples" in web.text("/dead-letters/DEAD")
        assert "$TW.API.COMMIT" in web.send("/dead-letters/DEAD/1/redrive", 403)
        assert "$JS.API.STREAM.MSG.DELETE.DEAD" in web.send("/dead-letters/DEAD/1/remove", 403)


def test_read_only_shows_no_way_to_change_and_refuses_what_is_sent(guarded: ServerProcess) -> None:
    options = ConnectOptions(servers=guarded.url, user="all", password="a")
    settings = DashboardSettings(options, port=0, is_read_only=True)
    with connected_dashboard(settings) as dashboard, visit(dashboard) as web:
        for path in ("/dead-letters/DEAD", "/dead-letters/DEAD/1"):
            text = web.text(path)
            assert "two aples" in text
            assert not any(word in text for word in ("Send", "Edit", "Remove"))
        for path in ("1/redrive", "1/edit", "1/remove", "redrive"):
            assert "--read-only" in web.send(f"/dead-letters/DEAD/{path}", 403)
