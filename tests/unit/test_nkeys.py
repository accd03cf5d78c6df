"""Nkeys against the reference implementation of the nkeys package, and against damage."""

from __future__ import annotations

import base64
import os

import nkeys as reference
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tradewind import nkeys

# The key pair of nats-server's documentation, and its signature of b"nonce".
SEED = "SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU"
PUBLIC = "UCK5N7N66OBOINFXAYC2ACJQYFSOD4VYNU6APEJTAVFZB2SVHLKGEW7L"
SIGNATURE = bytes.fromhex(
    "752685a6a8ee910d5b2b5d225419f9ca5aab92bf95e2b19b1282452feddf119c"
    "7bb0ae90c59a97b8238d7f9d31f63999aa0caa8b23a16f9a0335cc6aea949d00"
)
REFERENCE_PREFIXES = {
    nkeys.SERVER: reference.PREFIX_BYTE_SERVER,
    nkeys.CLUSTER: reference.PREFIX_BYTE_CLUSTER,
    nkeys.OPERATOR: reference.PREFIX_BYTE_OPERATOR,
    nkeys.ACCOUNT: reference.PREFIX_BYTE_ACCOUNT,
    nkeys.USER: reference.PREFIX_BYTE_USER,
}

raw_keys = st.binary(min_size=32, max_size=32)
kinds = st.sampled_from(sorted(nkeys.KINDS))


def test_a_known_seed_has_its_known_public_key_and_signature() -> None:
    pair = nkeys.KeyPair.from_seed(SEED)
    assert (pair.kind, pair.public, pair.seed) == (nkeys.USER, PUBLIC, SEED)
    assert pair.sign(b"nonce") == SIGNATURE
    assert nkeys.verify(nkeys.decode_public(PUBLIC, nkeys.USER)[1], b"nonce", SIGNATURE)


@pytest.mark.parametrize("kind", sorted(REFERENCE_PREFIXES))
def test_seeds_public_keys_and_signatures_are_those_of_the_reference(kind: str) -> None:
    raw = bytes(range(32))
    theirs = reference.from_seed(reference.encode_seed(raw, prefix=REFERENCE_PREFIXES[kind]))
    ours = nkeys.KeyPair(kind, raw)
    assert ours.seed == bytes(theirs.seed).decode()
    assert ours.public == theirs.public_key.decode()
    assert ours.sign(b"nonce") == theirs.sign(b"nonce")
    assert ours.public[0] == kind
    assert ours.seed[:2] == "S" + kind


@given(raw_keys)
def test_the_reference_reads_our_seeds_and_we_read_theirs(raw: bytes) -> None:
    ours = nkeys.encode_seed(nkeys.USER, raw)
    assert reference.decode_seed(ours.encode()) == (reference.PREFIX_BYTE_USER, raw)
    theirs = bytes(reference.encode_seed(raw, prefix=reference.PREFIX_BYTE_USER)).decode()
    assert nkeys.decode_seed(theirs) == (nkeys.USER, raw)


@given(kinds, raw_keys)
def test_public_keys_and_seeds_of_every_kind_come_back(kind: str, raw: bytes) -> None:
    public = nkeys.encode_public(kind, raw)
    assert len(public) == nkeys.PUBLIC_LENGTH
    assert nkeys.decode_public(public) == (kind, raw)
    assert nkeys.decode_public(public, kind) == (kind, raw)
    seed = nkeys.encode_seed(kind, raw)
    assert len(seed) == nkeys.SEED_LENGTH
    assert nkeys.decode_seed(seed) == (kind, raw)


@given(kinds, raw_keys, st.integers(0, 55), st.characters(codec="ascii"))
def test_a_public_key_with_one_character_changed_is_refused(
    kind: str, raw: bytes, index: int, char: str
) -> None:
    public = nkeys.encode_public(kind, raw)
    changed = public[:index] + char + public[index + 1 :]
    assert nkeys.is_public(changed) == (changed == public)


@given(st.text(max_size=80))
@example("")
@example("U" * 56)
@example("Ü" * 56)
@example("U" * 55 + "\n")
@example(PUBLIC + "\n")
@example(SEED)
def test_any_text_is_refused_with_one_clear_line(text: str) -> None:
    for kind in ("", nkeys.USER):
        with pytest.raises(nkeys.NkeyError) as caught:
            nkeys.decode_public(text, kind)
        assert str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_short_key_is_refused_by_its_length_alone() -> None:
    """NATS-advisory 2026-23: a short key must not reach the signature check."""
    with pytest.raises(nkeys.NkeyError, match="56 characters, not 55"):
        nkeys.decode_public("U" * 55)
    with pytest.raises(nkeys.NkeyError, match="58 characters, not 1000000"):
        nkeys.decode_seed("S" * 1_000_000)
    with pytest.raises(nkeys.NkeyError, match="32 bytes, not 31"):
        nkeys.encode_public(nkeys.USER, b"\0" * 31)
    with pytest.raises(nkeys.NkeyError, match="32 bytes, not 0"):
        nkeys.encode_seed(nkeys.USER, b"")
    with pytest.raises(nkeys.NkeyError, match="32 bytes, not 33"):
        nkeys.KeyPair(nkeys.USER, b"\0" * 33)


def test_errors_name_what_is_wrong() -> None:
    account = nkeys.encode_public(nkeys.ACCOUNT, b"\7" * 32)
    with pytest.raises(nkeys.NkeyError, match=r"its kind must be user \(U\.\.\.\), not account"):
        nkeys.decode_public(account, nkeys.USER)
    with pytest.raises(nkeys.NkeyError, match="letters A to Z and the digits 2 to 7"):
        nkeys.decode_public(account.lower())
    with pytest.raises(nkeys.NkeyError, match="checksum"):
        nkeys.decode_public(account[:-1] + ("A" if account[-1] != "A" else "B"))
    with pytest.raises(nkeys.NkeyError, match="one of N, C, O, A, U, X"):
        nkeys.encode_public("Q", b"\7" * 32)


def test_texts_with_a_valid_checksum_but_a_wrong_prefix_are_refused() -> None:
    def encoded(payload: bytes) -> str:
        crc = reference.crc16(bytearray(payload)).to_bytes(2, "little")
        return base64.b32encode(payload + crc).rstrip(b"=").decode()

    with pytest.raises(nkeys.NkeyError, match="must start with one of"):
        nkeys.decode_public(encoded(bytes([16 << 3]) + b"\0" * 32))  # Q
    with pytest.raises(nkeys.NkeyError, match="must start with one of"):
        nkeys.decode_public(encoded(bytes([(20 << 3) + 1]) + b"\0" * 32))  # U with stray bits
    with pytest.raises(nkeys.NkeyError, match="must start with S"):
        nkeys.decode_seed(encoded(bytes([20 << 3, 0]) + b"\0" * 32))
    with pytest.raises(nkeys.NkeyError, match="second letter"):
        nkeys.decode_seed(encoded(bytes([18 << 3 | 2, 0]) + b"\0" * 32))  # kind I
    with pytest.raises(nkeys.NkeyError, match="second letter"):
        nkeys.decode_seed(encoded(bytes([18 << 3 | 5, 1]) + b"\0" * 32))  # U with stray bits


def test_a_seed_text_has_one_spelling() -> None:
    """The last character of a seed carries two unused bits, which must be zero."""
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".index(SEED[-1])) | 3
    ]
    assert nkeys.decode_seed(SEED)[0] == nkeys.USER
    with pytest.raises(nkeys.NkeyError):
        nkeys.decode_seed(SEED[:-1] + last)


def test_a_key_pair_never_prints_its_seed() -> None:
    pair = nkeys.KeyPair.from_seed(SEED)
    assert repr(pair) == str(pair) == f"KeyPair({pair.public})"
    assert pair.seed == SEED
    with pytest.raises(nkeys.NkeyError) as caught:
        nkeys.decode_seed(SEED[:-1] + "!")
    assert SEED[5:20] not in str(caught.value)


def test_curve_keys_cannot_sign() -> None:
    seed = nkeys.encode_seed(nkeys.CURVE, b"\1" * 32)
    with pytest.raises(nkeys.NkeyError, match="curve key"):
        nkeys.KeyPair.from_seed(seed)


def test_server_ids_are_fresh_server_keys() -> None:
    assert nkeys.decode_public(nkeys.create_server_id(), nkeys.SERVER)[0] == "N"
    assert nkeys.create_server_id() != nkeys.create_server_id()
    assert nkeys.create_server_id(lambda size: b"\3" * size) == nkeys.create_server_id(
        lambda size: b"\3" * size
    )


@given(raw_keys, st.binary(max_size=40), st.integers(0, 511))
def test_a_signature_verifies_and_with_any_bit_changed_does_not(
    raw: bytes, message: bytes, bit: int
) -> None:
    pair = nkeys.KeyPair(nkeys.USER, raw)
    _, public = nkeys.decode_public(pair.public)
    signature = pair.sign(message)
    assert nkeys.verify(public, message, signature)
    damaged = bytearray(signature)
    damaged[bit // 8] ^= 1 << bit % 8
    assert not nkeys.verify(public, message, bytes(damaged))
    assert not nkeys.verify(public, message + b"\0", signature)


def test_the_wrong_key_and_degenerate_keys_verify_nothing() -> None:
    pair, other = nkeys.KeyPair(nkeys.USER, b"\1" * 32), nkeys.KeyPair(nkeys.USER, b"\2" * 32)
    signature = pair.sign(b"nonce")
    assert not nkeys.verify(nkeys.decode_public(other.public)[1], b"nonce", signature)
    for key in (b"\0" * 32, b"\1" + b"\0" * 31, b"\xff" * 32, b"", b"\0" * 31, b"\0" * 33):
        assert not nkeys.verify(key, b"nonce", signature)
        assert not nkeys.verify(key, b"nonce", b"\0" * 64)


@pytest.mark.parametrize("size", [0, 1, 63, 65, 100_000])
def test_a_signature_of_the_wrong_size_verifies_nothing(size: int) -> None:
    public = nkeys.decode_public(nkeys.KeyPair(nkeys.USER, b"\1" * 32).public)[1]
    assert not nkeys.verify(public, b"nonce", b"\0" * size)
    assert nkeys.decode_signature(base64.b64encode(b"\0" * size).decode()) is None


@given(st.binary(min_size=64, max_size=64))
@example(b"\xff" * 64)
@example(b"\xfb\xef" * 32)
def test_signatures_are_read_in_both_alphabets_padded_or_not(signature: bytes) -> None:
    for encode in (base64.urlsafe_b64encode, base64.standard_b64encode):
        text = encode(signature).decode()
        assert nkeys.decode_signature(text) == signature
        assert nkeys.decode_signature(text.rstrip("=")) == signature


@given(st.text(max_size=100))
@example("é" * 86)
@example("\ud800" * 86)
@example("A" * 86 + "\n")
@example("=" * 88)
def test_text_that_is_no_signature_is_none_and_raises_nothing(text: str) -> None:
    assert nkeys.decode_signature(text) is None


def test_entropy_is_the_systems_by_default() -> None:
    pair = nkeys.KeyPair.create(nkeys.USER)
    assert nkeys.is_public(pair.public, nkeys.USER)
    assert not nkeys.is_public(pair.public, nkeys.ACCOUNT)
    assert nkeys.KeyPair.create(nkeys.USER, os.urandom).public != pair.public


def test_box_is_opened_by_the_other_key_only() -> None:
    """2023-02: not by a key that is the same for everybody."""
    ann, bob = nkeys.CurveKeyPair.create(), nkeys.CurveKeyPair.create()
    box = ann.seal(b"secret", bob.public)
    assert box.startswith(b"xkv1")
    assert b"secret" not in box
    assert bob.open(box, ann.public) == b"secret"
    for key, sender in ((nkeys.CurveKeyPair.create(), ann.public), (bob, bob.public)):
        with pytest.raises(nkeys.NkeyError, match="was not made by this sender"):
            key.open(box, sender)


def test_curve_key_is_read_from_its_seed_and_shows_its_public_key_only() -> None:
    key = nkeys.CurveKeyPair(b"\x07" * 32)
    assert key.seed.startswith("SX")
    assert key.public.startswith("X")
    assert nkeys.CurveKeyPair.from_seed(key.seed).public == key.public
    assert repr(key) == f"CurveKeyPair({key.public})"
    with pytest.raises(nkeys.NkeyError, match=r"its kind must be curve \(SX\.\.\.\), not user"):
        nkeys.CurveKeyPair.from_seed(nkeys.KeyPair(nkeys.USER, b"\x07" * 32).seed)


@pytest.mark.parametrize("box", [b"", b"xkv1", b"xkv1" + b"a" * 10, b"xkv2" + b"a" * 60])
def test_what_is_no_box_is_refused(box: bytes) -> None:
    key = nkeys.CurveKeyPair(b"\x07" * 32)
    with pytest.raises(nkeys.NkeyError):
        key.open(box, key.public)


def test_curve_key_of_small_order_is_refused() -> None:
    """It would make the same box whoever the other is."""
    zero = nkeys.encode_public(nkeys.CURVE, bytes(32))
    with pytest.raises(nkeys.NkeyError, match="not usable"):
        nkeys.CurveKeyPair(b"\x07" * 32).seal(b"x", zero)
