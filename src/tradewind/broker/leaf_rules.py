"""The subjects that may cross a leaf connection: permissions, configured denials, and JetStream.

Owns the lists. It never applies them: `broker.leaf_session` and the router do.
"""

from __future__ import annotations

import msgspec

from tradewind.api.endpoints import API_SUBJECTS
from tradewind.broker.leaf_handshake import LeafSubjectRules
from tradewind.route.permission_rules import PermissionRules
from tradewind.route.permissions import Permissions
from tradewind.subjects import is_valid_subject

# Streams, buckets and objects of a server are its own: other servers reach them through its domain.
JETSTREAM_SUBJECTS = (*API_SUBJECTS, "$KV.>", "$OBJ.>")
# The subjects by which the servers of a system communicate about streams.
SYSTEM_SUBJECTS = ("$JSC.>", "$NRG.>")


class LeafRules(msgspec.Struct, frozen=True):
    """The rules of one connection: what may be received, what may be sent, and what the peer may
    request. Received messages must not be mapped to a forbidden subject.
    """

    incoming: Permissions | None
    outgoing: Permissions | None
    subscribable: Permissions | None
    forbidden: Permissions | None = None


class Domains(msgspec.Struct, frozen=True):
    """The JetStream domains of both ends."""

    own: str
    other: str
    is_system: bool
    is_lifted: bool = False  # default_js_domain opens the API of a hub without a domain

    @property
    def denied(self) -> tuple[str, ...]:
        """The subjects that do not cross the connection, in either direction."""
        if self.is_system:
            return SYSTEM_SUBJECTS if self.own != self.other else ()
        return () if self.is_lifted else JETSTREAM_SUBJECTS

    @property
    def kept(self) -> tuple[str, ...]:
        """The subjects that do not leave: requests to the own domain are answered here."""
        return (f"$JS.{self.own}.API.>",) if self.own and self.own != self.other else ()


def accepted_rules(
    user: PermissionRules | None,
    deny_pub: tuple[str, ...],
    domains: Domains,
    seed: int,
    *,
    is_spoke: bool,
) -> LeafRules:
    """The rules of the end that was dialled, whose user the peer logged in as. The permissions of
    the user apply in both roles: a peer chooses by CONNECT which end is the hub.

    As the hub, this server does not check what the peer sends for JetStream: a server that does
    not deny it may use the API here, as on nats-server. As the spoke it accepts subscriptions that
    are not permitted, and sends nothing for them.
    """
    user = user or PermissionRules()
    received = domains.denied if is_spoke else ()
    denied = (*domains.denied, *domains.kept, *_valid(deny_pub))
    allow, allow_grouped = _by_queue(user.subscribe_allow or ())
    deny, deny_grouped = _by_queue(user.subscribe_deny)
    # As on nats-server, another server cannot use what is allowed only to the members of one queue.
    deny = (*deny, *(entry.split()[0] for entry in allow_grouped))
    permitted = None if user.subscribe_allow is None else allow
    return LeafRules(
        _compiled(user.publish_allow, (*user.publish_deny, *received), seed),
        _compiled(permitted, (*deny, *denied), seed, deny_grouped),
        None if is_spoke else _compiled(permitted, deny, seed),
        _compiled(None, user.publish_deny, seed),
    )


def spoke_rules(
    imports: LeafSubjectRules | None,
    exports: LeafSubjectRules | None,
    deny_imports: tuple[str, ...],
    deny_exports: tuple[str, ...],
    domains: Domains,
    seed: int,
) -> LeafRules:
    """The rules of the end that has dialled: it respects what the hub allows."""
    imports, exports = imports or LeafSubjectRules(), exports or LeafSubjectRules()
    # Subjects that the hub denies to members of a queue are not sent to these.
    denied, _ = _by_queue(imports.deny or ())
    # Requests to the domain of this server are mapped to its API, so these are not forbidden.
    forbidden = (*_valid(denied), *deny_imports)
    incoming = (*forbidden, *domains.denied)
    outgoing = (*_valid(exports.deny or ()), *deny_exports, *domains.denied, *domains.kept)
    return LeafRules(
        _compiled(None if imports.allow is None else _valid(imports.allow), incoming, seed),
        _compiled(None if exports.allow is None else _valid(exports.allow), outgoing, seed),
        None,
        _compiled(None, forbidden, seed),
    )


def _compiled(
    allow: tuple[str, ...] | None,
    deny: tuple[str, ...],
    seed: int,
    deny_grouped: tuple[str, ...] = (),
) -> Permissions | None:
    if allow is None and not deny and not deny_grouped:
        return None
    rules = PermissionRules(publish_allow=allow, publish_deny=deny, subscribe_deny=deny_grouped)
    return Permissions(rules, seed)


def _by_queue(entries: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The entries without a queue, and those that name one after the subject."""
    grouped = tuple(entry for entry in entries if len(entry.split()) > 1)
    return tuple(entry for entry in entries if entry not in grouped), grouped


def _valid(subjects: tuple[str, ...]) -> tuple[str, ...]:
    """The valid subjects of a peer's list; all other entries are ignored."""
    found = (entry.split(" ")[0] for entry in subjects)
    return tuple(subject for subject in found if is_valid_subject(subject))
