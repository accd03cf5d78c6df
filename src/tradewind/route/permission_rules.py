"""The publish and subscribe permissions of a user, as plain data.

Owns the data structure between the configuration, which creates it, and `route.permissions`, which
compiles and checks it. It makes no checks itself.
"""

from __future__ import annotations

import msgspec

RESPONSE_COUNT_DEFAULT = 1
RESPONSE_EXPIRES_DEFAULT_NS = 2 * 60 * 1_000_000_000


class ResponseRule(msgspec.Struct, frozen=True):
    """The rule `allow_responses`: how many responses (-1: any number) may be published, and for how
    long (<0: forever).
    """

    count_max: int = RESPONSE_COUNT_DEFAULT
    expires_ns: int = RESPONSE_EXPIRES_DEFAULT_NS


class PermissionRules(msgspec.Struct, frozen=True):
    """Allow and deny lists as configured.

    `None` as an allow list permits everything; an empty tuple permits nothing. Deny overrides
    allow. Subscribe entries are either "subject" or "subject queue" (wildcards in both parts).
    """

    publish_allow: tuple[str, ...] | None = None
    publish_deny: tuple[str, ...] = ()
    subscribe_allow: tuple[str, ...] | None = None
    subscribe_deny: tuple[str, ...] = ()
    responses: ResponseRule | None = None
