"""Checkpoints: what is signed is what is compared, and a changed one is noticed."""

from __future__ import annotations

import base64
import hashlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_kit import KEY, OTHER_KEY, ReferenceChain, stored
from tradewind import nkeys
from tradewind.chain import checkpoints
from tradewind.chain.chain_entries import ChainError
from tradewind.chain.checkpoints import Checkpoint

FEW = settings(max_examples=40)

ORDER = (
    "stream created algorithm size first_seq last_seq messages time link root previous key"
    " signature"
)


def made() -> tuple[bytes, Checkpoint]:
    chain = ReferenceChain(stream="Größe")
    for sequence in range(1, 6):
        chain.add(stored(sequence))
    signed = chain.checkpoint()
    return chain.lines[0], signed


LINE, SIGNED = made()


def test_a_line_is_the_documented_text_and_signature() -> None:
    members = json.loads(LINE)
    assert " ".join(members) == ORDER
    signature = base64.urlsafe_b64decode(members.pop("signature") + "==")
    text = json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
    assert nkeys.verify(nkeys.decode_public(KEY.public)[1], text, signature)
    assert members["key"] == KEY.public
    assert checkpoints.digest(LINE) == hashlib.sha256(LINE).hexdigest()


def test_a_signed_checkpoint_comes_back() -> None:
    assert checkpoints.decode(LINE) == SIGNED
    assert checkpoints.is_signed(SIGNED)


@FEW
@given(
    st.sampled_from([name for name in ORDER.split() if name != "signature"]),
    st.integers(0, 1 << 63),
)
def test_any_other_member_is_not_what_was_signed(name: str, number: int) -> None:
    old = getattr(SIGNED, name)
    new = number if isinstance(old, int) else f"{old}{number}"
    changed = msgspec.structs.replace(SIGNED, **{name: new})
    assert checkpoints.is_signed(changed) == (new == old)


def test_the_signature_of_another_key_is_not_accepted() -> None:
    assert not checkpoints.is_signed(msgspec.structs.replace(SIGNED, key=OTHER_KEY.public))


@pytest.mark.parametrize("signature", ["", "A" * 86, "!" * 86, "A" * 1000])
def test_what_is_no_signature_is_not_accepted(signature: str) -> None:
    assert not checkpoints.is_signed(msgspec.structs.replace(SIGNED, signature=signature))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"algorithm": "md5"}, "algorithm must be one of sha256, blake3, not 'md5'"),
        ({"size": 0}, "size must be 1 or more, not 0"),
        ({"messages": -1}, "messages must be 0 or more, not -1"),
        ({"root": "AB" * 32}, "root must be 64 hexadecimal digits in lower case"),
        ({"link": ""}, "link must be 64 hexadecimal digits in lower case"),
        ({"previous": "00"}, "previous must be 64 hexadecimal digits in lower case"),
    ],
)
def test_members_that_cannot_be_are_named(change: dict[str, object], error: str) -> None:
    line = checkpoints.encode(msgspec.structs.replace(SIGNED, **change))
    with pytest.raises(ChainError) as caught:
        checkpoints.decode(line)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"\xff",
        LINE[:-1],
        LINE.replace(b'"size":5,', b""),
        LINE.replace(b'"size":5,', b'"size":"5",'),
        LINE.replace(b'{"stream"', b'{"more":1,"stream"'),
    ],
)
def test_what_is_no_checkpoint_is_refused(line: bytes) -> None:
    with pytest.raises(ChainError, match="not a checkpoint"):
        checkpoints.decode(line)


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace(b",", b", ", 1),
        LINE.replace("ö".encode(), b"\\u00f6"),
        LINE + b" ",
        LINE.replace(b'"size":5,', b"").replace(b'"time"', b'"size":5,"time"'),
    ],
)
def test_the_same_checkpoint_in_another_form_is_refused(line: bytes) -> None:
    with pytest.raises(ChainError, match="in their order, without spaces"):
        checkpoints.decode(line)


def test_an_endless_line_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ChainError, match="at most 65536 bytes"):
        checkpoints.decode(b'{"stream":"' + b"a" * 70_000)
