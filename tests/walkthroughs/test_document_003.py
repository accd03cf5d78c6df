"""The article about the API of the second preview, and about configuration as files."""

from __future__ import annotations

from pathlib import Path

import pytest
from walkthrough_kit import SLOWEST_SECONDS, follow


@pytest.mark.timeout(SLOWEST_SECONDS)
def test_article_about_the_api_can_be_followed(tmp_path: Path) -> None:
    follow("003-api-and-configuration.md", tmp_path)
