"""The notes that end with a stream of orders."""

from __future__ import annotations

from pathlib import Path

import pytest
from walkthrough_kit import SLOWEST_SECONDS, follow


@pytest.mark.timeout(SLOWEST_SECONDS)
def test_orders_can_be_followed(tmp_path: Path) -> None:
    follow("004-orders.md", tmp_path)
