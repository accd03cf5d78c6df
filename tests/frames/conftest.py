"""One server of each kind for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from frame_kit import FramePlace, frame_place


@pytest.fixture(scope="module", params=["official", "tradewind"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FramePlace]:
    with frame_place(request.param, tmp_path_factory.mktemp(request.param)) as place:
        yield place
