"""One folder under two running servers: each says the same of it, field by field, and goes on."""

from __future__ import annotations

import asyncio

import pytest

from journey_kit import NAMES, WAYS, Journey, make_journey
from server_truth import differences

# The fixture below is made once for all tests of this file.
pytestmark = [pytest.mark.xdist_group("interop_servers"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=WAYS, ids=" ".join)
def journey(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    return asyncio.run(make_journey(*request.param, tmp_path_factory.mktemp("journey")))


@pytest.mark.parametrize("name", NAMES)
def test_the_other_server_says_the_same(journey: Journey, name: str) -> None:
    assert differences(journey.first[name], journey.other[name]) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_the_other_server_has_changed_comes_back(journey: Journey, name: str) -> None:
    assert differences(journey.left[name], journey.back[name]) == []
