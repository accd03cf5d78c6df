"""The name of a server that was given none."""

from __future__ import annotations

import pytest

from tradewind.nkeys import create_server_id
from tradewind.server.lifecycle.default_name import default_server_name

SERVER_ID = "NA" + "X4TQ2M" + "A" * 48


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("harbour", "harbour-X4TQ2M"),
        ("harbour.example.org", "harbour-X4TQ2M"),
        ("my host", "my-host-X4TQ2M"),
        ("h" * 64, f"{'h' * 48}-X4TQ2M"),
        ("", SERVER_ID),
        ("...", SERVER_ID),
    ],
)
def test_the_default_name_is_the_host_with_a_part_of_the_id(host: str, name: str) -> None:
    assert default_server_name(SERVER_ID, host) == name


def test_servers_of_one_host_have_different_names() -> None:
    names = {default_server_name(create_server_id(), "harbour") for _ in range(200)}
    assert len(names) == 200
