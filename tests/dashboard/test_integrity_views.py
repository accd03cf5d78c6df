"""The integrity of a stream: its chain, a verification of its end, and the checkpoint as a file."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

import tradewind
from chain_answers import ChainAnswers, chain_of_stream
from chain_kit import KEY, OTHER_KEY, ReferenceChain
from dashboard.conftest import Web
from harness import ServerProcess
from tradewind.api.chain import ChainInfo
from tradewind.chain import checkpoints
from tradewind.dashboard.data import integrity

if TYPE_CHECKING:
    from tradewind.sync import Connection

PAGE = "/streams/S/integrity"


@pytest.fixture
def answers(
    server: ServerProcess, nats: Connection, monkeypatch: pytest.MonkeyPatch
) -> ChainAnswers:
    """Stream S with 20 messages, on both servers: the answers about its chain are ours."""
    answers = ChainAnswers(monkeypatch)
    nats.jetstream_manager().streams.add(name="S", subjects=["S.>"])
    for number in range(1, 21):
        nats.jetstream().publish("S.<b>x", b"payload %d" % number)

    async def chain() -> ReferenceChain:
        async with await tradewind.connect(server.url) as connection:
            return await chain_of_stream(connection.jetstream(), "S")

    answers.chains["S"] = asyncio.run(chain())
    return answers


def test_a_chain_is_shown_with_its_checkpoint_and_signer(web: Web, answers: ChainAnswers) -> None:
    text = web.text(PAGE)
    chain = answers.chains["S"]
    assert "no break found" in text
    assert "sha256" in text
    assert chain.link.hex() in text
    assert KEY.public in text
    assert "20 entries, up to 20" in text
    assert "Signature valid" in text
    assert f'href="{PAGE}"' in web.page("/streams/S")


def test_the_last_entries_are_verified_and_faults_are_listed(
    web: Web, answers: ChainAnswers
) -> None:
    assert "5 messages read, all as they were stored." in web.text(f"{PAGE}?last=5")
    chain = answers.chains["S"]
    other = ReferenceChain(stream="S", created=chain.created)
    for number, message in sorted(chain.live.items()):
        other.add(replace(message, payload=b"<script>") if number == 18 else message)
    other.checkpoint()
    answers.chains["S"] = other
    text = web.text(f"{PAGE}?last=5")
    assert "1 fault in 5 messages." in text
    assert "changed sequence 18: content changed 17" in text
    assert "all as they were stored" in web.text(f"{PAGE}?last=2")


def test_a_broken_chain_and_a_forged_checkpoint_are_shown_as_text(
    web: Web, answers: ChainAnswers
) -> None:
    plain = answers.info

    def info(chain: ReferenceChain, request: object) -> ChainInfo:
        found = plain(chain, request)
        head = msgspec.structs.replace(
            found.checkpoint, key="<script>alert(1)</script>", time="<b>"
        )
        return msgspec.structs.replace(
            found, is_broken=True, broken_index=7, checkpoint=head, algorithm="<i>sha</i>"
        )

    answers.info = info  # type: ignore[method-assign]
    html = web.page(PAGE)
    assert "<script>alert" not in html
    assert "<i>sha" not in html
    text = web.text(PAGE)
    assert "broken at entry 7" in text
    assert "forged" in text
    assert "<script>alert(1)</script>" in text


def test_a_checkpoint_of_an_earlier_key_is_pointed_out(web: Web, answers: ChainAnswers) -> None:
    answers.chains["S"].key = OTHER_KEY
    assert "by a key other than the current one" in web.text(PAGE)


def test_the_checkpoint_is_a_file_that_was_signed(web: Web, answers: ChainAnswers) -> None:
    saved = web.get(f"{PAGE}/checkpoint")
    assert saved.headers["content-disposition"] == "attachment; filename*=UTF-8''S.checkpoint"
    assert saved.content == answers.chains["S"].lines[-1] + b"\n"
    assert checkpoints.is_signed(checkpoints.decode(saved.content.rstrip()))
    answers.chains["S"].lines.clear()
    assert web.get(f"{PAGE}/checkpoint").status_code == 404
    assert "There is none yet." in web.text(PAGE)


@pytest.mark.parametrize("last", ["0", "-1", "x", "10001", "9" * 30])
def test_a_number_that_is_too_large_or_none_is_refused(
    web: Web, answers: ChainAnswers, last: str
) -> None:
    assert "last must be " in web.text(f"{PAGE}?last={last}", 400)


def test_a_verification_that_takes_too_long_ends(
    web: Web, answers: ChainAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "VERIFY_SECONDS", 0.0)
    assert "This took more than 0 seconds." in web.text(f"{PAGE}?last=5")


def test_a_stream_without_a_chain_and_one_that_is_not_there(
    web: Web, nats: Connection, server: ServerProcess
) -> None:
    nats.jetstream_manager().streams.add(name="PLAIN", subjects=["plain"])
    text = web.text("/streams/PLAIN/integrity?last=5")
    expected = {
        "tradewind": "A stream gets one when it is created with the metadata tradewind.chain.",
        "official": "This server has no hash chains",
    }
    assert expected[server.kind] in text
    assert web.get("/streams/NONE/integrity").status_code == 404
