"""The `permissions` block of a user, an account or the whole server.

Owns the translation of its many spellings to `PermissionRules`. It never evaluates the rules, which
is up to `tradewind.route`.
"""

from __future__ import annotations

from tradewind.route.permission_rules import (
    RESPONSE_COUNT_DEFAULT,
    RESPONSE_EXPIRES_DEFAULT_NS,
    PermissionRules,
    ResponseRule,
)
from tradewind.server.config.reader import Reader, duration, expect, fault, integer
from tradewind.server.config.tree import ConfigNode
from tradewind.subjects import is_valid_subject

_Subjects = tuple[tuple[str, ...] | None, tuple[str, ...]]


class PermissionsReader:
    """Reads permission blocks; an instance only carries where mistakes are collected."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, node: ConfigNode, key: str) -> PermissionRules:
        """The rules of a whole block."""
        publish = ("publish", self._publish)
        subscribe = ("subscribe", self._subscribe)
        responses = ("responses", self._responses)
        fields = self._reader.fields(
            node,
            key,
            {
                "publish": publish,
                "pub": publish,
                "import": publish,
                "subscribe": subscribe,
                "sub": subscribe,
                "export": subscribe,
                "allow_responses": responses,
                "publish_allow_responses": responses,
            },
        )
        publish_allow, publish_deny = fields.get("publish", (None, ()))
        subscribe_allow, subscribe_deny = fields.get("subscribe", (None, ()))
        response_rule = fields.get("responses")
        if response_rule and publish_allow is None:
            publish_allow = ()  # a user who may only respond may not also publish everywhere
        return PermissionRules(
            publish_allow=publish_allow,
            publish_deny=publish_deny,
            subscribe_allow=subscribe_allow,
            subscribe_deny=subscribe_deny,
            responses=response_rule,
        )

    def _publish(self, node: ConfigNode, key: str) -> _Subjects:
        return self._subjects(node, key, with_queue=False)

    def _subscribe(self, node: ConfigNode, key: str) -> _Subjects:
        return self._subjects(node, key, with_queue=True)

    def _subjects(self, node: ConfigNode, key: str, *, with_queue: bool) -> _Subjects:
        """Allow and deny lists of a subject, of a list of them, or of an {allow, deny} block."""

        def checked(child: ConfigNode, name: str) -> tuple[str, ...]:
            return _subject_list(child, name, with_queue=with_queue)

        if not isinstance(node.value, dict):
            return self._none_if_empty(node, key, checked(node, key)), ()
        fields = self._reader.fields(
            node, key, {"allow": ("allow", checked), "deny": ("deny", checked)}
        )
        allow = fields.get("allow")
        if allow is not None:
            allow = self._none_if_empty(node, f"{key}.allow", allow)
        return allow, fields.get("deny", ())

    def _none_if_empty(
        self, node: ConfigNode, key: str, subjects: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        if subjects:
            return subjects
        self._reader.notices.append(
            f"{node.path}:{node.line}: {key} is an empty list, which permits everything, as in "
            'nats-server; to permit nothing write {deny: ">"}'
        )
        return None

    def _responses(self, node: ConfigNode, key: str) -> ResponseRule | None:
        if isinstance(node.value, bool):
            return ResponseRule() if node.value else None
        expect(node, key, dict, "true, false or a block with max and expires")
        count = ("count", integer)
        expires = ("expires", duration)
        fields = self._reader.fields(
            node,
            key,
            {
                "max": count,
                "max_msgs": count,
                "max_messages": count,
                "max_responses": count,
                "expires": expires,
                "expiration": expires,
                "ttl": expires,
            },
        )
        return ResponseRule(
            count_max=fields.get("count") or RESPONSE_COUNT_DEFAULT,
            expires_ns=fields.get("expires") or RESPONSE_EXPIRES_DEFAULT_NS,
        )


def _subject_list(node: ConfigNode, key: str, *, with_queue: bool) -> tuple[str, ...]:
    items = node.value if isinstance(node.value, list) else [node]
    subjects = []
    for item in items:
        subject = expect(item, key, str, "a subject or a list of subjects")
        words = subject.split() if with_queue else [subject]
        if not is_valid_subject(subject) and not (len(words) == 2 and is_valid_subject(words[0])):
            extra = ', or "subject queue"' if with_queue else ""
            raise fault(item, f"{key}: {subject!r} is not a valid subject{extra}")
        subjects.append(" ".join(words))
    return tuple(subjects)
