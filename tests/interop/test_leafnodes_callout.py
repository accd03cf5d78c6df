"""Leaf nodes of either kind whose login a service decides about, at hubs of either kind."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.helpers_callout import Service, callout_configuration
from leaf_kit import PAIRINGS, Node, hub_config, leaf_config

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("kinds", PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]),
]


def test_remote_comes_until_a_service_lets_it_in(kinds: tuple[str, str], tmp_path: Path) -> None:
    """Without a service, with one that says nothing, and with one that says no it does not enter;
    the service that says yes puts it into the account that it names.
    """
    with ExitStack() as stack:
        config = callout_configuration(hub_config(), timeout=0.5)
        hub = Node(kinds[0], tmp_path, "hub", config)
        stack.callback(hub.stop)
        leaf = Node(kinds[1], tmp_path, "leaf", leaf_config(hub.leaf_port, login="site:secret@"))
        stack.callback(leaf.stop)
        leaf.process.wait_for_log("Authorization Violation")
        with Service(hub.process) as service:
            service.question()  # and no answer
            refused = service.question()
            assert refused.fields.connect_opts["user"] == "site"
            assert refused.fields.connect_opts["pass"] == "secret"
            assert refused.fields.client_info["name"] == "leaf"
            service.answer(refused, refused.response(error="come again"))
            question = service.question()
            assert not hub.leafs()
            service.answer(question, question.response(question.user(account="OTHER")))
            hub.wait_linked()
            leaf.wait_linked()
            assert [one["account"] for one in hub.leafs()] == ["OTHER"]
