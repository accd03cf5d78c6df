"""The rights of the client on whose behalf the server acts.

Owns the decision about subjects, for everything that is sent over a connection: directly, over a
leaf connection, or through an import. The callers know which subjects an action needs
(`tradewind.jetstream.deeds`, and streams for actions that headers request).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tradewind.route.sharing_rules import local_subject
from tradewind.subjects import collide, is_subset

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.session import Session
    from tradewind.route.permission_rules import PermissionRules


class Authority(msgspec.Struct, frozen=True):
    """The rights of a client that requests something about `account`. `session` is the connection
    that has sent the request; if it is None, nothing is allowed.
    """

    account: Account
    session: Session | None

    def may(self, subject: str) -> bool:
        """Whether publishing to a literal subject is allowed."""
        session = self.session
        if session is None:
            return False
        if session.account is self.account:
            return session.may_send_to(subject.encode("utf-8", "surrogateescape"))
        return self._may_reach(session, subject)

    def may_all(self, pattern: str) -> bool:
        """Whether publishing to every subject that a pattern matches is allowed."""
        session = self.session
        if session is None:
            return False
        if session.account is self.account:
            return is_all_allowed(session.publish_rules, pattern)
        return self._may_reach(session, pattern)

    def _may_reach(self, session: Session, pattern: str) -> bool:
        """Whether an import covers the pattern, and the client may use the whole of that import."""
        bridge = session.account.bridge
        return bridge is not None and any(
            one.exporter is self.account
            and is_subset(pattern, one.wanted.subject)
            and is_all_allowed(session.publish_rules, local_subject(one.wanted))
            for one in bridge.services
        )


def is_all_allowed(rules: PermissionRules | None, pattern: str) -> bool:
    """Whether rules allow publishing to every subject that a pattern matches."""
    if rules is None:
        return True
    if rules.publish_allow is not None and not any(
        is_subset(pattern, allowed) for allowed in rules.publish_allow
    ):
        return False
    return not any(collide(pattern, denied) for denied in rules.publish_deny)
