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

# Streams, buckets and objects of a server are its own: others reach them by its domain.
JETSTREAM_SUBJECTS = (*API_SUBJECTS, "$KV.>", "$OBJ.>")
# How the servers of a system talk to each other about streams.
SYSTEM_SUBJECTS = ("$JSC.>", "$NRG.>")


class LeafRules(msgspec.Struct, frozen=True):
    """One connection: what may come, what may be sent, and what the peer may ask for."""

    incoming: Permissions | None
    outgoing: Permissions | None
    subscribable: Permissions | None


class Domains(msgspec.Struct, frozen=True):
    """What both ends say about JetStream."""

    own: str
    other: str
    is_system: bool
    is_lifted: bool = False  # default_js_domain opens the API of a hub without a domain

    @property
    def denied(self) -> tuple[str, ...]:
        """What does not cross, either way."""
        if self.is_system:
            return SYSTEM_SUBJECTS if self.own != self.other else ()
        return () if self.is_lifted else JETSTREAM_SUBJECTS

    @property
    def kept(self) -> tuple[str, ...]:
        """What does not leave: requests to the own domain are answered here."""
        return (f"$JS.{self.own}.API.>",) if self.own and self.own != self.other else ()


def hub_rules(
    user: PermissionRules | None, deny_pub: tuple[str, ...], domains: Domains, seed: int
) -> LeafRules:
    """For the end that is the hub. What a peer sends is not looked at for JetStream: a server that
    does not deny it may use the API here, as on nats-server.
    """
    denied = (*domains.denied, *domains.kept, *_valid(deny_pub))
    if user is None:
        return LeafRules(None, _compiled(None, denied, seed), None)
    incoming = None
    if user.publish_allow is not None or user.publish_deny:
        incoming = Permissions(
            PermissionRules(
                publish_allow=user.publish_allow,
                publish_deny=user.publish_deny,
                responses=user.responses,
            ),
            seed,
        )
    allow = None if user.subscribe_allow is None else _subjects(user.subscribe_allow)
    deny = _subjects(user.subscribe_deny)
    return LeafRules(
        incoming,
        _compiled(allow, (*deny, *denied), seed),
        _compiled(allow, deny, seed),
    )


def spoke_rules(
    imports: LeafSubjectRules | None,
    exports: LeafSubjectRules | None,
    deny_imports: tuple[str, ...],
    deny_exports: tuple[str, ...],
    domains: Domains,
    seed: int,
) -> LeafRules:
    """For the end that is the spoke: it holds itself to what the hub allows."""
    imports, exports = imports or LeafSubjectRules(), exports or LeafSubjectRules()
    incoming = (*_valid(imports.deny or ()), *deny_imports, *domains.denied)
    outgoing = (*_valid(exports.deny or ()), *deny_exports, *domains.denied, *domains.kept)
    return LeafRules(
        _compiled(None if imports.allow is None else _valid(imports.allow), incoming, seed),
        _compiled(None if exports.allow is None else _valid(exports.allow), outgoing, seed),
        None,
    )


def _compiled(
    allow: tuple[str, ...] | None, deny: tuple[str, ...], seed: int
) -> Permissions | None:
    if allow is None and not deny:
        return None
    return Permissions(PermissionRules(publish_allow=allow, publish_deny=deny), seed)


def _subjects(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Entries may name a queue group behind the subject."""
    return tuple(entry.split()[0] for entry in entries)


def _valid(subjects: tuple[str, ...]) -> tuple[str, ...]:
    """What a peer says is believed only as far as it means something."""
    found = (entry.split(" ")[0] for entry in subjects)
    return tuple(subject for subject in found if is_valid_subject(subject))
