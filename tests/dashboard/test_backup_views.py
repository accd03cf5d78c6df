"""Backups as files that a browser saves and gives back, on both servers."""

from __future__ import annotations

import io
import json
import random
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from dashboard.conftest import Web
from harness import BIN, wait_for
from tradewind.client.api_errors import StreamNotFoundError

if TYPE_CHECKING:
    from tradewind.sync import Connection

BUSY = "expected sequence does not match store"
SAVE = "/streams/ORDERS/backup/file?consumers=1"


def fill(nats: Connection, messages: int = 200, size: int = 500) -> None:
    nats.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.>"], storage="file")
    js = nats.jetstream()
    # So that no compression makes a backup smaller than what sockets take in by themselves.
    content = random.Random(7)
    for number in range(messages):
        js.publish_async(f"orders.{number % 7}", content.randbytes(size))
    js.publish("orders.last", b"the last")
    consumers = nats.jetstream_manager().consumers
    consumers.add("ORDERS", durable_name="packer", ack_policy="explicit")


def until_back(nats: Connection, try_it: Callable[[], bool]) -> None:
    """Restore a stream that was just deleted. nats-server removes its files some time later, until
    then may refuse the new ones, and leaves half a stream.
    """

    def is_back() -> bool:
        if try_it():
            return True
        with suppress(StreamNotFoundError):
            nats.jetstream_manager().streams.delete("ORDERS")
        return False

    wait_for(is_back)


def give_back(web: Web, nats: Connection, data: bytes) -> httpx.Response:
    answers: list[httpx.Response] = []

    def try_it() -> bool:
        headers = {"X-CSRF-Token": web.token()}
        answers.append(web.client.put("/restore", content=data, headers=headers))
        assert answers[-1].status_code == 201 or BUSY in answers[-1].text, answers[-1].text
        return answers[-1].status_code == 201

    until_back(nats, try_it)
    return answers[-1]


def test_a_stream_is_saved_and_made_again(web: Web, nats: Connection, tmp_path: Path) -> None:
    fill(nats)
    streams = nats.jetstream_manager().streams
    page = web.text("/streams/ORDERS/backup")
    assert "201 messages" in page
    saved = web.get(SAVE)
    assert saved.headers["content-disposition"] == "attachment; filename*=UTF-8''ORDERS.zip"
    archive = zipfile.ZipFile(io.BytesIO(saved.content))
    assert archive.testzip() is None
    assert archive.namelist() == ["ORDERS/backup.json", "ORDERS/stream.tar.s2"]
    assert json.loads(archive.read("ORDERS/backup.json"))["state"]["messages"] == 201
    assert "Backup of ORDERS" in web.text("/streams/ORDERS/backup")
    assert "name already in use" in web.put("/restore", saved.content, 409, name="ORDERS.zip").text
    streams.delete("ORDERS")
    answer = give_back(web, nats, saved.content)
    assert answer.headers["location"] == "/streams/ORDERS"
    assert answer.text == "Stream ORDERS was restored, with 201 messages."
    assert streams.get_message("ORDERS", seq=201).data == b"the last"
    consumers = nats.jetstream_manager().consumers
    wait_for(lambda: consumers.info("ORDERS", "packer").num_pending == 201)
    assert "done" in web.text("/restore")
    # Unpacked it is what the command line takes.
    streams.delete("ORDERS")
    archive.extractall(tmp_path)
    command = [BIN / "tradewind", "--server", nats.url, "stream", "restore", "--no-progress"]
    command.append(tmp_path / "ORDERS")
    until_back(nats, lambda: not subprocess.run(command, capture_output=True).returncode)
    assert streams.get_message("ORDERS", seq=201).data == b"the last"
    # Of another tool, and without the consumers.
    streams_only = web.get("/streams/ORDERS/backup/file?check=1").content
    entries = zipfile.ZipFile(io.BytesIO(streams_only))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", method) as other:
            other.writestr("folder/", b"")
            other.writestr("folder/backup.json", entries.read("ORDERS/backup.json"))
            other.writestr("folder/stream.tar.s2", entries.read("ORDERS/stream.tar.s2"))
        streams.delete("ORDERS")
        assert "was restored" in give_back(web, nats, made.getvalue()).text
    assert nats.jetstream_manager().consumers.names("ORDERS").all() == []


def test_what_is_no_backup_is_refused_in_words(web: Web, nats: Connection) -> None:
    fill(nats)
    whole = web.get(SAVE).content
    nats.jetstream_manager().streams.delete("ORDERS")
    entries = zipfile.ZipFile(io.BytesIO(whole))
    data = entries.read("ORDERS/stream.tar.s2")

    def packed(*parts: tuple[str, bytes]) -> bytes:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as other:
            for name, content in parts:
                other.writestr(name, content)
        return made.getvalue()

    at = whole.index(data[:64]) + len(data) // 2
    flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for sent, reason in (
        (b"", "not a zip file"),
        (b"hello, this is a text and not a backup", "not a zip file"),
        (whole[: len(whole) // 2], "truncated"),
        (packed(("stream.tar.s2", data)), "backup.json must come first"),
        (packed(("backup.json", b"{")), "truncated"),
        (packed(("backup.json", b"{}")), "must have a config with a name"),
        (packed(("backup.json", b'{"config":{"name":"X"}}'), ("other", b"")), "instead of"),
        (packed(("<script>", b"")), "<script>"),
        (flipped, ""),
    ):
        answer = web.client.put("/restore", content=sent, headers={"X-CSRF-Token": web.token()})
        assert answer.status_code in (409, 502), (reason, answer.text)
        assert answer.headers["content-type"].startswith("text/plain")
        assert reason in answer.text
    for name in ("ORDERS", "X"):
        with pytest.raises(StreamNotFoundError):
            nats.jetstream_manager().streams.info(name)
    page = web.page("/restore")
    assert page.count("<script") == 1
    # What was given up is out of the way.
    assert "was restored" in give_back(web, nats, whole).text
    assert "stream not found" in web.text("/streams/NOTHING/backup", 404)
    assert "stream not found" in web.text("/streams/NOTHING/backup/file", 404)


def test_a_restore_that_is_stopped_leaves_nothing(web: Web, nats: Connection) -> None:
    fill(nats, 2000)
    whole = web.get(SAVE).content
    nats.jetstream_manager().streams.delete("ORDERS")
    other = Web(web.url)

    def pieces() -> Iterator[bytes]:
        yield whole[: len(whole) // 2]
        wait_for(lambda: "Restore of x.zip" in other.text("/restore"))
        page = other.page("/restore")
        target = page.partition('action="/transfers/')[2].partition('"')[0]
        assert "is stopped." in other.send(f"/transfers/{target}")
        yield whole[len(whole) // 2 :]

    assert "It was stopped" in web.put("/restore", pieces(), 502, name="x.zip").text
    assert "ORDERS" not in nats.jetstream_manager().streams.names().all()
    other.client.close()


def test_a_backup_that_is_broken_off_is_told(web: Web, nats: Connection) -> None:
    fill(nats, 4000, 4000)
    with web.client.stream("GET", SAVE) as answer:
        for _ in answer.iter_raw():
            break
    wait_for(lambda: "The browser cancelled it" in web.text("/streams/ORDERS/backup"))
