"""Allow and deny rules, compiled for one user.

Owns the decision for one subject. Publish and delivery checks run once per message on the concrete
subject and use the trie; subscribe checks run once per SUB, compare two patterns and are plain
Python. Deny always wins, even where a narrower allow names the same queue (nats-server had to fix
that twice).

An entry of a deny list that names a queue concerns only members of that queue. Such a member cannot
subscribe to what the entry covers, and where its pattern is wider than the entry, every message is
checked against the entry with the queue of the subscription. The name of a queue is text, even if
it looks like a wildcard.
"""

from libc.stdint cimport uint64_t
from tradewind.route.sublist cimport Match, QueueGroup, subject_matches

from tradewind.subjects import collide, is_literal, is_subset


cdef Sublist subject_set(entries, uint64_t seed):
    """A trie of the entries; None if there is no list."""
    cdef Sublist result
    if entries is None:
        return None
    result = Sublist(seed)
    for entry in entries:
        result.keep(entry.encode())
    return result


cdef Sublist group_set(pairs, uint64_t seed):
    """A trie of (subject, queue) pairs; None if there are none. Lookups are rare, so results are
    not cached.
    """
    cdef Sublist result
    if not pairs:
        return None
    result = Sublist(seed, cache=False)
    for subject, queue in pairs:
        result.keep(subject.encode(), queue.encode())
    return result


cdef bint covers(str pattern, str text) except -1:
    """Whether a pattern covers a text; wildcards in the text are ordinary tokens."""
    cdef bytes wide = pattern.encode("utf-8", "surrogateescape")
    cdef bytes narrow = text.encode("utf-8", "surrogateescape")
    return subject_matches(narrow, <uint32_t>len(narrow), wide, <uint32_t>len(wide))


cdef list split_entries(entries):
    """Split "subject" or "subject queue" entries into (subject, queue) pairs."""
    result = []
    for entry in entries:
        parts = entry.split()
        result.append((parts[0], parts[1] if len(parts) > 1 else ""))
    return result


cdef class Permissions:
    """Compiled from `route.rules.PermissionRules`; immutable, so sessions of one user share it."""

    def __init__(self, rules, uint64_t seed):
        self.rules = rules
        self.publish_allow = subject_set(rules.publish_allow, seed)
        self.publish_deny = subject_set(rules.publish_deny, seed) if rules.publish_deny else None
        self.subscribe_allow_entries = (
            None if rules.subscribe_allow is None else split_entries(rules.subscribe_allow))
        self.subscribe_deny_entries = split_entries(rules.subscribe_deny)
        plain = [subject for subject, queue in self.subscribe_deny_entries if not queue]
        self.subscribe_deny = subject_set(plain, seed) if plain else None
        self.subscribe_deny_grouped = group_set(
            [pair for pair in self.subscribe_deny_entries if pair[1]], seed)
        self.tracks_responses = rules.responses is not None

    cdef bint publish_denied(self, const char* subject, uint32_t size) noexcept nogil:
        """Whether a deny rule covers a subject, even if it is allowed."""
        return self.publish_deny is not None and self.publish_deny.matches_any(subject, size)

    cdef bint publish_allowed(self, const char* subject, uint32_t size) noexcept nogil:
        if self.publish_denied(subject, size):
            return False
        return self.publish_allow is None or self.publish_allow.matches_any(subject, size)

    cdef bint delivery_allowed(self, const char* subject, uint32_t size, const char* queue,
                               uint32_t queue_size) noexcept nogil:
        """Whether this concrete subject may be delivered to a member of `queue` whose subscription
        is wider than a deny rule; without a queue, `queue_size` is 0.
        """
        if self.subscribe_deny is not None and self.subscribe_deny.matches_any(subject, size):
            return False
        return queue_size == 0 or self.subscribe_deny_grouped is None \
            or not self._group_denied(subject, size, queue, queue_size)

    cdef bint _group_denied(self, const char* subject, uint32_t size, const char* queue,
                            uint32_t queue_size) noexcept nogil:
        """Whether an entry that names a queue denies a subject to a member of `queue`."""
        cdef Match* match = self.subscribe_deny_grouped.match(subject, size)
        cdef uint32_t index
        cdef QueueGroup* group
        if match == NULL:
            return True     # lack of memory prevents finding out
        for index in range(match.groups.count):
            group = &match.groups.items[index]
            if subject_matches(queue, queue_size, group.members.items[0].queue,
                               group.members.items[0].queue_size):
                return True
        return False

    def may_publish(self, bytes subject not None):
        """Whether a message may be published to a subject (tracked responses aside); for tests."""
        return self.publish_allowed(subject, <uint32_t>len(subject))

    def may_deliver(self, bytes subject not None, bytes queue not None=b""):
        """Whether a message on a concrete subject may reach a subscription wider than a deny rule;
        for tests.
        """
        return self.delivery_allowed(
            subject, <uint32_t>len(subject), queue, <uint32_t>len(queue))

    def may_subscribe(self, str subject not None, str queue not None=""):
        """Return (allowed, filtered); `filtered` means that a deny rule covers part of the
        subscription.

        A '>' at the end of `subject` counts as covered by a '*' of a deny rule, as on nats-server.
        """
        if (self.subscribe_allow_entries is not None
                and not self._subscribe_is_allowed(subject, queue)):
            return False, False
        filtered = False
        wildcard = not is_literal(subject)
        for denied, denied_queue in self.subscribe_deny_entries:
            if denied_queue and not (queue and covers(denied_queue, queue)):
                continue
            if covers(denied, subject):
                return False, False
            if wildcard and collide(subject, denied):
                filtered = True
        return True, filtered

    def _subscribe_is_allowed(self, subject, queue):
        """Whether an allow list covers a queue subscription: by an entry without a queue, or with a
        matching queue if any entry names one.
        """
        plain = False
        queue_named = False
        for allowed, allowed_queue in self.subscribe_allow_entries:
            if not is_subset(subject, allowed):
                continue
            if not allowed_queue:
                plain = True
            elif queue:
                queue_named = True
                if is_subset(queue, allowed_queue):
                    return True
        return plain and not queue_named
