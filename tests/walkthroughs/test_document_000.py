"""The introduction to the first preview of JetStream, command by command."""

from __future__ import annotations

from pathlib import Path

import pytest
from walkthrough_kit import SLOWEST_SECONDS, follow


@pytest.mark.timeout(SLOWEST_SECONDS)
def test_introduction_to_message_sets_can_be_followed(tmp_path: Path) -> None:
    follow("000-first-preview.md", tmp_path)
