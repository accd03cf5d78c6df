"""Object stores as pages show them, with files up and down, on both servers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from dashboard.conftest import Web
from harness import wait_for
from tradewind.client.objects.object_types import encode_digest

if TYPE_CHECKING:
    from tradewind.sync import Connection

HOSTILE = "../<script>alert(1)</script>\\\"'%2e#?.txt"


def held_bytes() -> int:
    """How much memory this process holds, in which the dashboard runs, too."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_files_go_up_and_down(web: Web, nats: Connection) -> None:
    text = web.send("/new-store", name="films", storage="file", ttl="24h", max_bytes=1 << 30)
    assert "Store films was created." in text
    data = bytes(range(256)) * 2000
    answer = web.put("/objects/films/-/upload", data, name="a b.bin", description="the first")
    assert answer.headers["location"] == "/objects/films"
    text = web.text("/objects/films")
    assert "a b.bin is stored, 500 KiB." in text
    assert "a b.bin 500 KiB 4" in text
    assert "the first" in text
    assert "Upload of a b.bin 500 KiB done" in text
    assert nats.jetstream().objects.open("films").get("a b.bin").read() == data
    path = "/objects/films/-"
    text = web.text(f"{path}/object?name=a b.bin")
    assert f"Digest {encode_digest(hashlib.sha256(data).digest())}" in text
    assert "512,000 bytes" in text
    assert "4 of at most 128 KiB" in text
    saved = web.get(f"{path}/download?name=a b.bin")
    assert saved.content == data
    assert saved.headers["content-length"] == str(len(data))
    assert saved.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.bin"
    assert saved.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in saved.headers["content-security-policy"]
    # An empty file, and one in place of another.
    web.put("/objects/films/-/upload", b"", name="empty")
    assert web.get(f"{path}/download?name=empty").content == b""
    web.put("/objects/films/-/upload", b"short", name="a b.bin")
    assert web.get(f"{path}/download?name=a b.bin").content == b"short"
    assert "films" in web.text("/objects")
    assert "Delete this object?" in web.text(f"{path}/remove?name=empty")
    assert "empty was deleted." in web.send(f"{path}/remove", name="empty")
    assert "has no object 'empty'" in web.text(f"{path}/object?name=empty", 404)
    assert "has no object 'empty'" in web.text(f"{path}/download?name=empty", 404)
    assert "name must have 1 to" in web.text(f"{path}/object", 400)


def test_stores_are_sealed_and_deleted(web: Web, nats: Connection) -> None:
    nats.jetstream().objects.create("films").put("x", b"1")
    assert "nothing was done" in web.send("/objects/films/-/seal", 400, typed="film")
    assert "Store films is sealed." in web.send("/objects/films/-/seal", typed="films")
    page = web.text("/objects/films")
    assert "sealed" in page
    assert "Upload a file" not in page
    refused = web.put("/objects/films/-/upload", b"2", 409, name="y")
    assert "sealed" in refused.text
    assert "Store films was deleted." in web.send("/objects/films/-/delete", typed="films")
    assert "There are no object stores." in web.text("/objects")
    assert "there is no object store" in web.text("/objects/films", 404)
    assert (
        "bucket 'films' does not exist"
        in web.put("/objects/films/-/upload", b"2", 404, name="y").text
    )
    assert "letters, digits" in web.send("/new-store", 502, name="a b")


def test_objects_come_in_pages_and_links_lead_on(web: Web, nats: Connection) -> None:
    store = nats.jetstream().objects.create("many")
    first = store.put("file-00", b"x")
    for number in range(1, 53):
        store.put(f"file-{number:02}", b"x")
    store.link("shortcut", first)
    page = web.page("/objects/many")
    assert "file-49" in page
    assert "file-50" not in page
    more = page.partition('class="pager">')[2].partition('href="')[2].partition('"')[0]
    text = web.text(more.replace("&amp;", "&"))
    assert "file-52" in text
    assert "shortcut link" in text
    assert "file-07" in web.text("/objects/many?search=E-07")
    assert "No objects found." in web.text("/objects/many?search=nothing")
    assert "Links to file-00 of many" in web.text("/objects/many/-/object?name=shortcut")
    assert web.get("/objects/many/-/download?name=shortcut").content == b"x"
    # Stores of older clients allow no direct gets.
    nats.jetstream_manager().streams.update("OBJ_many", allow_direct=False)
    wait_for(lambda: "file-49" in web.text("/objects/many"))
    assert "file-52" in web.text(more.replace("&amp;", "&"))


def test_hostile_names_and_descriptions_are_text(web: Web, nats: Connection) -> None:
    store = nats.jetstream().objects.create("h")
    web.put("/objects/h/-/upload", b"<script>", name=HOSTILE, description=HOSTILE)
    store.update(HOSTILE, headers={HOSTILE: HOSTILE}, metadata={HOSTILE: HOSTILE})
    path = f"/objects/h/-/object?name={quote(HOSTILE, safe='')}"
    remove = f"/objects/h/-/remove?name={quote(HOSTILE, safe='')}"
    for each in ("/objects/h", path, remove, f"/objects/h?search={quote('<script>')}"):
        page = web.page(each)
        assert page.count("<script") == 1, each
        assert HOSTILE in web.text(each), each
    saved = web.get(f"/objects/h/-/download?name={quote(HOSTILE, safe='')}")
    assert saved.content == b"<script>"
    name = saved.headers["content-disposition"].removeprefix("attachment; filename*=UTF-8''")
    assert not set(name) & set('/\\"<>')
    # What others write there is passed over, and lies about sizes are found out.
    nats.jetstream().publish("$O.h.M.eA==", b"no description")
    nats.jetstream().publish("$O.h.C.1", b"four")
    nats.jetstream().publish(
        "$O.h.M.bA==", b'{"name":"l","bucket":"h","nuid":"1","size":2,"chunks":1,"digest":"x"}'
    )
    assert "1 description cannot be read" in web.text("/objects/h")
    with pytest.raises(httpx.RemoteProtocolError):
        web.get("/objects/h/-/download?name=l")
    assert "failed object 'l': 4 bytes in 1 chunks instead of 2" in web.text("/objects/h")


def test_an_upload_that_breaks_off_leaves_nothing(web: Web, nats: Connection) -> None:
    store = nats.jetstream().objects.create("b")

    def pieces() -> Iterator[bytes]:
        for _ in range(40):
            yield bytes(1 << 16)
        wait_for(lambda: "Upload of x" in web.text("/objects/b"))
        raise OSError("the browser is closed")

    with pytest.raises(OSError, match="closed"):
        web.put("/objects/b/-/upload", pieces(), name="x", size=1 << 30)
    wait_for(lambda: "The browser cancelled it" in web.text("/objects/b"))
    assert list(store.list()) == []
    wait_for(lambda: nats.jetstream_manager().streams.info("OBJ_b").state.messages == 0)


def test_an_upload_is_stopped_by_a_button(web: Web, nats: Connection) -> None:
    nats.jetstream().objects.create("b")
    other = Web(web.url)

    def pieces() -> Iterator[bytes]:
        yield bytes(1 << 20)
        # There may be one of an earlier test, which has ended.
        wait_for(lambda: 'action="/transfers/' in other.page("/objects/b"))
        page = other.page("/objects/b")
        target = page.partition('action="/transfers/')[2].partition('"')[0]
        assert "is stopped." in other.send(f"/transfers/{target}")
        yield bytes(1 << 20)

    refused = web.put("/objects/b/-/upload", pieces(), 502, name="x")
    assert "It was stopped" in refused.text
    assert nats.jetstream_manager().streams.info("OBJ_b").state.messages == 0
    other.client.close()


def test_a_large_file_passes_through_little_memory(web: Web, nats: Connection) -> None:
    nats.jetstream().objects.create("large", storage="file")
    before = held = held_bytes()
    block, blocks = bytes(1 << 20), 96

    def pieces() -> Iterator[bytes]:
        nonlocal held
        for _ in range(blocks):
            held = max(held, held_bytes())
            yield block

    web.put("/objects/large/-/upload", pieces(), name="x")
    received = 0
    with web.client.stream("GET", "/objects/large/-/download?name=x") as answer:
        for chunk in answer.iter_raw():
            received += len(chunk)
            held = max(held, held_bytes())
    assert received == blocks << 20
    assert held - before < 48 << 20


def test_files_need_the_token_and_a_dashboard_that_may_change(web: Web, nats: Connection) -> None:
    nats.jetstream().objects.create("b")
    path = "/objects/b/-/upload?name=x"
    assert web.client.put(path, content=b"1").status_code == 403
    headers = {"X-CSRF-Token": web.token(), "Origin": "http://evil.example"}
    assert web.client.put(path, content=b"1", headers=headers).status_code == 403
    assert list(nats.jetstream().objects.open("b").list()) == []
