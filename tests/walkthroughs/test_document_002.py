"""The note about a persistent setup: files, restart, and everything is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from walkthrough_kit import SLOWEST_SECONDS, follow


@pytest.mark.timeout(SLOWEST_SECONDS)
def test_setup_survives_a_restart(tmp_path: Path) -> None:
    follow("002-persistent-setup.md", tmp_path)
