"""The key that signs chains: from the configuration, or made once."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tradewind.errors import StoreError
from tradewind.jetstream.chain_keeper import load_key
from tradewind.nkeys import ACCOUNT, KeyPair
from tradewind.options import JetStreamOptions, Secret
from tradewind.store.files.disk import OsDisk

PAIR = KeyPair(ACCOUNT, bytes(range(32)))


def loaded(folder: Path, given: str = "") -> KeyPair:
    options = JetStreamOptions(chain_key=Secret(given))
    root = SimpleNamespace(root=str(folder), disk=OsDisk(str(folder)))
    engine = SimpleNamespace(settings=SimpleNamespace(options=options), root=root)
    return load_key(cast("Any", engine))


def test_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    first = loaded(tmp_path)
    assert loaded(tmp_path).public == first.public
    assert stat.S_IMODE((tmp_path / "chain.nk").stat().st_mode) == 0o600


def test_key_of_the_configuration_is_a_seed_or_its_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(PAIR.seed + "\n")
    for given in (PAIR.seed, str(file)):
        assert loaded(tmp_path, given).public == PAIR.public
    assert not (tmp_path / "chain.nk").exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "cannot be read"), ("SECRET", "not the seed"), (PAIR.public, "not the seed")],
)
def test_key_that_is_none_is_refused_without_showing_it(
    tmp_path: Path, content: str | None, text: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    with pytest.raises(StoreError) as caught:
        loaded(tmp_path, str(file))
    assert text in str(caught.value)
    assert content is None or content not in str(caught.value)
