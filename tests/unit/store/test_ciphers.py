"""The ciphers against vectors that nats-server 2.15.1 agrees with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.store.format.ciphers import (
    AES,
    CHACHA,
    BlockCipher,
    CipherKind,
    NotSealedError,
    hchacha20,
    kind_of_key_file,
    seal,
    unseal,
    wrapping_key,
)

SEED = bytes(range(32))
NONCES = {"chacha": bytes(range(0x64, 0x7C)), "aes": bytes(range(0x64, 0x74))}
KINDS = pytest.mark.parametrize("kind", [CHACHA, AES], ids=lambda kind: kind.name)
TEXT = b"hello nats"
KEY_FILES = {
    "chacha": "6465666768696a6b6c6d6e6f707172737475767778797a7b"
    "aeed2bb36b51512e844baba514042bb1d7997231302c7a339594172d02898c8b"
    "8a8950650c5669deff82190f65f8e98c",
    "aes": "6465666768696a6b6c6d6e6f70717273"
    "300a923efd49e0b05825f49a65229ac91812e6a4fe2eec5e338cb39401dc11df"
    "89ccc55b926d6f6bd0820357de7dbe42",
}
STREAMS = {
    "chacha": ("b1b4a53e9a1bdbf31ace", "e1e7eb5cf21fc80ec9ba"),
    "aes": ("fbbd7d4cd900d52c0afe", "34be2f50c8babfcdf93a"),
}
SEALED = {
    "chacha": "141695dc900ee7e3f343ece134e46924af070cf62e656aed6e9c",
    "aes": "b0d62f3d8b3449b9c68a7cdebcee601f222c7f2ca539ae5cc417",
}


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ("S1", "c1db1fbe220fc60ef7c52871b17fb48d09c471b2eed16a6712c86f9bfe2e520f"),
        ("S1:1", "73223d907ab3492a89bb635fef657c2a1f69a8a9453c00b4d2e79ce9c94d904d"),
        ("S1.D1", "c8eb8af90683b1bfdf174b68bef3f29fd62967d16a8c131b98fd43e34f732ae9"),
    ],
)
def test_wrapping_keys_are_those_of_nats_server(context: str, expected: str) -> None:
    assert wrapping_key("s3cr!t", "ACME", context).hex() == expected


def test_inner_key_of_chacha_is_that_of_the_draft() -> None:
    key = bytes(range(32))
    head = bytes.fromhex("000000090000004a0000000031415927")
    expected = "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"
    assert hchacha20(key, head).hex() == expected
    expected = "eca2711e80b0c1af4f65dc825b1b1b5a07be253f22c58bd234229551e93206fc"
    assert hchacha20(SEED, NONCES["chacha"][:16]).hex() == expected


@KINDS
def test_key_file_is_that_of_nats_server(kind: CipherKind) -> None:
    key = wrapping_key("s3cr!t", "ACME", "S1")
    content = seal(kind, key, SEED, NONCES[kind.name])
    assert content.hex() == KEY_FILES[kind.name]
    assert unseal(kind, key, content) == SEED
    assert kind_of_key_file(len(content)) is kind


@KINDS
def test_sealed_content_is_that_of_nats_server(kind: CipherKind) -> None:
    nonce = NONCES[kind.name]
    assert seal(kind, SEED, TEXT, nonce).hex() == nonce.hex() + SEALED[kind.name]


@KINDS
def test_keystream_is_that_of_nats_server(kind: CipherKind) -> None:
    cipher = BlockCipher(kind, SEED, NONCES[kind.name])
    at_begin, later = STREAMS[kind.name]
    assert cipher.encrypt(TEXT).hex() == at_begin
    assert cipher.encrypt(TEXT, 70).hex() == later
    assert cipher.decrypt(bytes.fromhex(later), 70) == TEXT


@KINDS
@given(parts=st.lists(st.binary(max_size=200), max_size=8), start=st.integers(0, 1 << 20))
def test_appends_of_any_sizes_are_one_keystream(
    kind: CipherKind, parts: list[bytes], start: int
) -> None:
    cipher = BlockCipher(kind, SEED, NONCES[kind.name])
    stored, at = b"", start
    for part in parts:
        stored += cipher.append(part, at)
        at += len(part)
    assert stored == cipher.encrypt(b"".join(parts), start)
    assert cipher.decrypt(stored, start) == b"".join(parts)


@KINDS
@given(offset=st.integers(0, 3000), sectors=st.integers(1, 4), size=st.integers(0, 1000))
def test_sectors_that_were_never_written_are_zeros_again(
    kind: CipherKind, offset: int, sectors: int, size: int
) -> None:
    cipher = BlockCipher(kind, SEED, NONCES[kind.name])
    hole = bytes(512 * sectors)
    begin = -offset % 512
    content = b"\x01" * (begin + size)
    stored = cipher.encrypt(content, offset)
    stored = stored[:begin] + hole + cipher.encrypt(content[begin:], offset + begin + len(hole))
    found = cipher.decrypt(stored, offset)
    assert found == content[:begin] + hole + content[begin:]


@KINDS
def test_content_of_another_key_or_with_a_wrong_bit_is_refused(kind: CipherKind) -> None:
    sealed = seal(kind, SEED, TEXT)
    assert unseal(kind, SEED, sealed) == TEXT
    with pytest.raises(NotSealedError, match="another key, or damaged"):
        unseal(kind, bytes(32), sealed)
    for place in range(len(sealed)):
        spoiled = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(NotSealedError):
            unseal(kind, SEED, spoiled)
    with pytest.raises(NotSealedError, match="too few"):
        unseal(kind, SEED, sealed[:10])


@KINDS
def test_no_two_sealed_contents_are_the_same(kind: CipherKind) -> None:
    assert seal(kind, SEED, TEXT) != seal(kind, SEED, TEXT)
