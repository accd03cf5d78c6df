"""Refused forms, conflicts, questions before what cannot be undone, and missing rights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboard.conftest import Web, hidden_fields, text_of
from harness import ServerProcess
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard

if TYPE_CHECKING:
    from tradewind.sync import Connection

CONFIG = """
listen: "127.0.0.1:-1"
jetstream {{ store_dir: "{folder}" }}
accounts {{
  A {{
    jetstream: enabled
    users: [
      {{user: all, password: "secret-all"}}
      {{user: clerk, password: "secret-clerk", permissions: {{
        publish: {{
          deny: ["$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.DELETE.>", "$KV.prices.locked",
                 "$JS.API.CONSUMER.PAUSE.>"]
        }}
      }}}}
    ]
  }}
}}
"""


def entered(html: str, name: str) -> str:
    """What an input of a page holds."""
    found = re.search(rf'<input [^>]*name="{re.escape(name)}"[^>]* value="([^"]*)"', html)
    assert found, name
    return unescape(found[1])


def post(web: Web, path: str, status: int, **fields: str) -> str:
    """Fill in a form; the page that follows as HTML."""
    data = {"csrf": web.token(), **fields}
    answer = web.client.post(path, data=data, follow_redirects=True)
    assert answer.status_code == status, (answer.status_code, text_of(answer.text))
    return answer.text


def test_a_refused_form_keeps_what_was_entered_with_the_error_at_its_field(
    web: Web, nats: Connection
) -> None:
    fields = {"name": "A", "subjects": "a..b", "max_age": "7 dayz", "description": '<b>"x'}
    html = post(web, "/new-stream", 400, **fields)
    assert {name: entered(html, name) for name in fields} == fields
    for name in ("subjects", "max_age"):
        marked = re.search(rf'<input [^>]*name="{name}"[^>]*>', html)
        assert marked
        assert 'aria-invalid="true"' in marked[0]
        assert f'aria-describedby="in-{name}-error' in marked[0]
        assert f'href="#in-{name}"' in html
    assert 'role="alert"' in html
    assert "<b>" not in html
    # The words of the server lead to a field, too.
    nats.jetstream_manager().streams.add(name="TAKEN", subjects=["taken"])
    html = post(web, "/new-stream", 409, name="B", subjects="taken", max_age="7 days")
    assert entered(html, "max_age") == "7 days"
    assert "subjects overlap with an existing stream" in text_of(html)
    assert 'href="#in-subjects"' in html
    # JSON comes back as it was written.
    html = post(web, "/new-stream", 502, config='{"name": 5}')
    assert "{&quot;name&quot;: 5}</textarea>" in html
    html = post(web, "/new-bucket", 400, name="b", ttl="soon", description="kept")
    assert entered(html, "description") == "kept"
    assert 'id="in-ttl-error"' in html
    html = post(web, "/new-store", 400, name="s", max_bytes="huge")
    assert 'id="in-max_bytes-error"' in html
    html = post(web, "/publish", 400, subject="a.*", headers="A: 1", payload="typed")
    assert ">typed</textarea>" in html
    assert 'id="in-subject-error"' in html


def test_one_form_creates_and_edits_with_human_units(web: Web, nats: Connection) -> None:
    text = web.send(
        "/new-stream",
        name="ORDERS",
        subjects="orders.>",
        max_age="7 days",
        max_bytes="10 MiB",
        allow_direct="0",
        metadata="owner = sales\nteam = a=b",
        compression="s2",
        **{"republish.dest": "copy.>", "consumer_limits.max_ack_pending": "9"},
    )
    assert "Stream ORDERS was created." in text
    config = nats.jetstream_manager().streams.info("ORDERS").config
    assert config.max_age == 7 * 86400 * 10**9
    assert config.max_bytes == 10 << 20
    assert not config.allow_direct
    assert config.metadata["team"] == "a=b"
    assert config.republish is not None
    assert config.republish.dest == "copy.>"
    assert config.consumer_limits.max_ack_pending == 9
    html = web.page("/streams/ORDERS/edit")
    assert entered(html, "max_age") == "7d"
    assert entered(html, "max_bytes") == "10 MiB"
    base = hidden_fields(html)["base"]
    review = web.send("/streams/ORDERS/edit", base=base, max_age="36h", max_bytes="10 MiB")
    assert "Maximum age 7d 1d12h" in review
    assert "Maximum size" not in review.partition("As JSON")[0].partition("Then")[2]
    html = post(web, "/streams/ORDERS/edit", 200, base=base, max_age="36h")
    sent = hidden_fields(html)
    # Somebody else changes it before this is applied: what was entered stays.
    nats.jetstream_manager().streams.update("ORDERS", description="theirs")
    html = post(
        web, "/streams/ORDERS/apply", 502, config=sent["config"], base=base, way=sent["way"]
    )
    assert "someone else has changed this" in text_of(html)
    assert entered(html, "max_age") == "1d12h"
    assert 'href="/streams/ORDERS/edit?as=json"' in html
    fresh = hidden_fields(html)["base"]
    html = post(web, "/streams/ORDERS/edit", 200, base=fresh, max_age="36h")
    sent = hidden_fields(html)
    assert "was changed" in web.send(
        "/streams/ORDERS/apply", config=sent["config"], base=sent["base"]
    )
    config = nats.jetstream_manager().streams.info("ORDERS").config
    assert (config.max_age, config.description) == (36 * 3600 * 10**9, "theirs")
    assert config.metadata["owner"] == "sales"


def test_a_consumer_is_edited_by_the_form(web: Web, nats: Connection) -> None:
    nats.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"])
    path = "/streams/ORDERS/consumers/packer"
    fields = {"name": "packer", "filter_subjects": "orders.eu", "ack_wait": "45s"}
    web.send("/streams/ORDERS/new-consumer", backoff="1s, 1m", max_deliver="5", **fields)
    html = web.page(f"{path}/edit")
    assert entered(html, "ack_wait") == "1s"  # servers take the first of the backoff
    assert entered(html, "backoff") == "1s, 1m"
    assert entered(html, "filter_subjects") == "orders.eu"
    assert re.search(r'<input [^>]*name="name"[^>]* disabled', html)
    base = hidden_fields(html)["base"]
    html = post(web, f"{path}/edit", 200, base=base, filter_subjects="orders.eu, orders.us")
    assert "Only these subjects orders.eu orders.eu, orders.us" in text_of(html)
    sent = hidden_fields(html)
    web.send(f"{path}/apply", config=sent["config"], base=sent["base"])
    config = nats.jetstream_manager().consumers.info("ORDERS", "packer").config
    assert config.filter_subjects == ["orders.eu", "orders.us"]
    assert config.filter_subject == ""
    assert "duration must be" in web.send(f"{path}/pause", 400, duration="soon")
    # A browser sends all fields, also those that a consumer without acknowledgements has not.
    whole = {"name": "free", "ack_policy": "none", "ack_wait": "30s", "max_ack_pending": "1000"}
    assert "was created" in web.send("/streams/ORDERS/new-consumer", **whole)


def test_a_conflict_shows_both_values_and_lets_the_visitor_choose(
    web: Web, nats: Connection
) -> None:
    bucket = nats.jetstream().kv.create("prices", history=5)
    bucket.put("pear", b"first")
    bucket.put("pear", b"theirs <b>")
    html = post(web, "/kv/prices/-/put", 409, key="pear", value="mine", revision="1")
    text = text_of(html)
    assert "Nothing was changed: somebody else was faster." in text
    assert "theirs &lt;b&gt;</pre>" in html
    assert ">mine</textarea>" in html
    assert "Replace revision 2 with this" in text
    assert bucket.get("pear").value == b"theirs <b>"  # type: ignore[union-attr]
    sent = hidden_fields(html)
    assert sent["revision"] == "2"
    assert "is set, revision 3" in web.send("/kv/prices/-/put", value="mine", **_keys(sent))
    # The same for a key that exists already, and one that was deleted meanwhile.
    assert "Which value of pear?" in web.send("/kv/prices/-/put", 409, key="pear", value="x")
    bucket.delete("pear")
    text = web.send("/kv/prices/-/put", 409, key="pear", value="x", revision=3)
    assert "The key was deleted meanwhile." in text


def _keys(sent: dict[str, str]) -> dict[str, str]:
    return {name: sent[name] for name in ("key", "revision")}


def test_what_cannot_be_undone_is_asked_first_with_what_it_removes(
    web: Web, nats: Connection
) -> None:
    bucket = nats.jetstream().kv.create("prices", history=5)
    for number in range(3):
        bucket.put("pear", f"value {number}")
    page = web.page("/kv/prices/pear")
    assert "/-/purge" not in page
    assert "/-/delete" not in page
    text = web.text("/buckets/prices/purge-key?key=pear")
    assert "Its value, revision 3" in text
    assert "removed with 2 earlier values" in text
    text = web.text("/buckets/prices/delete-key?key=pear")
    assert "3 values stay in the history" in text
    assert "cannot be undone" not in text
    nats.jetstream().kv.create("single").put("a", b"x")
    text = web.text("/buckets/single/delete-key?key=a")
    assert "removed for good" in text
    assert "cannot be undone" in text
    # Somebody else was faster than the question: it is asked again, about the newest value.
    bucket.put("pear", b"value 3")
    text = web.send("/kv/prices/-/purge", 409, key="pear", revision=3)
    assert "Its value, revision 4" in text
    assert bucket.get("pear") is not None
    assert "a marker" in web.text("/buckets/prices/markers")
    nats.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"])
    js = nats.jetstream()
    for _ in range(4):
        js.publish("orders.x", b"")
    consumers = nats.jetstream_manager().consumers
    consumers.add("ORDERS", durable_name="c", ack_policy="explicit")
    taken = list(js.consumers.get("ORDERS", "c").fetch(3))
    assert len(taken) == 3
    text = web.text("/streams/ORDERS/consumers/c/reset")
    assert "delivered messages up to sequence 3, and all up to 0 are acknowledged" in text
    assert "3 unacknowledged messages and all after them are delivered again" in text
    text = web.text("/streams/ORDERS/consumers/c/delete")
    assert "1 message not yet delivered, 3 unacknowledged" in text
    assert "seq must be a whole number" in web.send(
        "/streams/ORDERS/consumers/c/reset", 400, seq="x"
    )
    # Everyday buttons and dangerous ones are apart.
    page = web.page("/streams/ORDERS")
    toolbar, zone = page.partition('id="danger-zone"')[::2]
    for part in ("purge", "seal", "delete"):
        assert f"/streams/ORDERS/{part}" not in toolbar
        assert f"/streams/ORDERS/{part}" in zone


@pytest.fixture(params=["official", "tradewind"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a clerk who may not remove what others need."""
    path = tmp_path / "server.conf"
    path.write_text(CONFIG.format(folder=tmp_path / "store"))
    process = ServerProcess(request.param, ["-c", str(path)]).wait_ready()
    try:
        yield process
    finally:
        process.stop()


def test_what_a_login_may_not_do_is_off_and_says_why(guarded: ServerProcess) -> None:
    with ExitStack() as stack:

        def visit(user: str) -> Web:
            options = ConnectOptions(servers=guarded.url, user=user, password=f"secret-{user}")
            dashboard = stack.enter_context(running_dashboard(DashboardSettings(options, port=0)))
            made = Web(dashboard.url)
            stack.enter_context(made.client)
            return made

        owner, clerk = visit("all"), visit("clerk")
        owner.send("/new-stream", name="ORDERS", subjects="orders.>")
        owner.send("/streams/ORDERS/new-consumer", name="c")
        owner.send("/new-bucket", name="prices")
        owner.send("/kv/prices/-/put", key="locked", value="1")
        owner.send("/kv/prices/-/put", key="free", value="1")
        page = clerk.page("/streams/ORDERS")
        for part in ("PURGE", "DELETE"):
            assert f"This login may not publish to $JS.API.STREAM.{part}.ORDERS." in text_of(page)
        for part in ("purge", "delete"):
            assert f'href="/streams/ORDERS/{part}"' not in page
        assert 'href="/streams/ORDERS/edit"' in page
        assert 'href="/streams/ORDERS/seal"' in page
        page = clerk.page("/streams/ORDERS/purge")
        assert re.search(r"<button [^>]*disabled[^>]*>Show what would be removed", page)
        page = clerk.page("/streams/ORDERS/consumers/c")
        assert re.search(r"<button [^>]*disabled[^>]*>Pause", page)
        assert "$JS.API.CONSUMER.PAUSE.ORDERS.c" in page
        assert re.search(r"<button [^>]*disabled[^>]*>Set", clerk.page("/kv/prices/locked"))
        assert not re.search(r"<button [^>]*disabled[^>]*>Set", clerk.page("/kv/prices/free"))
        # Who may do all sees nothing of this.
        assert "may not publish" not in owner.text("/streams/ORDERS")
        # It is a courtesy: the server decides.
        denied = clerk.send("/streams/ORDERS/delete", 403, typed="ORDERS")
        assert "$JS.API.STREAM.DELETE.ORDERS" in denied
