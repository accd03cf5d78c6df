"""What the rules of a login permit, as far as they are known."""

from __future__ import annotations

import pytest

from tradewind.dashboard.data.rights import RULES_MAX, rights_of

PURGE = "$JS.API.STREAM.PURGE.ORDERS"


def told(allow: object = None, deny: object = None) -> str:
    rules = {name: value for name, value in (("allow", allow), ("deny", deny)) if value is not None}
    return rights_of({"permissions": {"publish": rules}}).refusal(PURGE)


def test_rules_permit_and_refuse_as_servers_do() -> None:
    assert told() == ""
    assert told(["$JS.API.>"]) == ""
    assert told(["$JS.API.STREAM.*.ORDERS"]) == ""
    assert told(["$JS.API.STREAM.INFO.>"]) == f"This login may not publish to {PURGE}."
    assert told(["$JS.API.>"], ["$JS.API.STREAM.PURGE.>"]) != ""
    assert told(deny=["$JS.API.STREAM.PURGE.OTHER"]) == ""
    # An empty list is no rule.
    assert told([], []) == ""


@pytest.mark.parametrize("bad", ["x", 5, {"a": 1}, [1], ["x"] * (RULES_MAX + 1)])
def test_rules_of_another_form_refuse_nothing(bad: object) -> None:
    assert told(bad) == ""
    assert told(deny=bad) == ""
    assert rights_of({"permissions": bad} if isinstance(bad, dict) else {}).refusal(PURGE) == ""
