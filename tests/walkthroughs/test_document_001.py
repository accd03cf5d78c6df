"""The guide of the clients, program by program."""

from __future__ import annotations

from pathlib import Path

import pytest
from walkthrough_kit import SLOWEST_SECONDS, follow


@pytest.mark.timeout(SLOWEST_SECONDS)
def test_guide_of_the_client_can_be_followed(tmp_path: Path) -> None:
    follow("001-client.md", tmp_path)
