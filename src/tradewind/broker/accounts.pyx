"""An account: an isolated subject space with its members and counters.

Owns the sublist of the account and the server's own subscriptions in it. It never sees another
account: imports and exports, when they come, will be explicit bridges made by the broker, not
lookups in here.
"""

from dataclasses import dataclass

cimport cython
from libc.stdint cimport uint32_t
from tradewind.broker.state cimport Hook
from tradewind.route.sublist cimport (
    Match, QueueGroup, Subscription, subject_valid, subscription_free, subscription_new)


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """-1 means no limit."""

    connections_max: int = -1
    subscriptions_max: int = -1
    payload_bytes_max: int = -1


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """One subscription as monitoring shows it."""

    subject: str
    queue: str
    sid: str
    msgs: int
    max_msgs: int
    cid: int
    account: str


@dataclass(frozen=True, slots=True)
class InternalMessage:
    """A message handed to one of the server's own services; `session` is the publisher, if a
    client.
    """

    account: "Account"
    subject: str
    reply: str
    header: bytes
    payload: bytes
    session: object


cdef class InternalSubscription:
    """Keeps a service's handler alive while its subscription is in the trie."""

    cdef Subscription* subscription
    cdef readonly object handler

    def __dealloc__(self):
        subscription_free(self.subscription)


cdef str text_of(const char* data, uint32_t size):
    return data[:size].decode("utf-8", "replace")


@cython.no_gc_clear     # a session that is taken apart with it still removes its subscriptions
cdef class Account:
    """Created by the broker with the router that delivers for it."""

    def __init__(self, str name not None, router, seed=0, limits=None, cache=True):
        self.name = name
        self.router = router
        self.sublist = Sublist(seed, cache)
        self.limits = limits or AccountLimits()
        self.sessions = {}
        self._internal = {}

    @property
    def session_count(self):
        """Number of open connections."""
        return len(self.sessions)

    @property
    def subscription_count(self):
        """Number of client subscriptions; the server's own are not counted."""
        return self.sublist.count - len(self._internal)

    @property
    def subscription_changes(self):
        """A number that is another one after each subscription that came or went."""
        return self.sublist.inserts + self.sublist.removes

    def has_interest(self, str subject not None):
        """Whether anybody would receive a message on this subject."""
        return self.sublist.has_interest(subject.encode())

    def publish(self, str subject not None, bytes payload not None, str reply="", bytes header=b""):
        """Publish as the server itself; gives the number of deliveries."""
        return self.router.publish_internal(
            self, subject.encode("utf-8", "surrogateescape"), payload,
            reply.encode("utf-8", "surrogateescape"), header)

    def subscribe(self, str subject not None, handler, str queue=""):
        """Have `handler(InternalMessage)` called after each turn in which a message arrived; gives
        a token.
        """
        return self._add_internal(subject.encode(), NULL, handler, queue.encode())

    cdef size_t attach(self, bytes subject, Hook hook, object target, bytes group=b"") except 0:
        """Have `hook` called with `target` for each message at once; gives a token."""
        return self._add_internal(subject, <void*>hook, target, group)

    cdef size_t _add_internal(self, bytes name, void* hook, object handler,
                              bytes group) except 0:
        cdef InternalSubscription entry = InternalSubscription()
        if not subject_valid(name, <uint32_t>len(name), False):
            raise ValueError(f"invalid subject {name.decode('utf-8', 'replace')!r}")
        entry.handler = handler
        entry.subscription = subscription_new(
            name, <uint32_t>len(name), group, <uint32_t>len(group), b"", 0)
        if entry.subscription == NULL:
            raise MemoryError
        entry.subscription.handler = <void*>handler
        entry.subscription.hook = hook
        if self.sublist.insert(entry.subscription) != 0:
            raise MemoryError
        self._internal[<size_t>entry.subscription] = entry
        return <size_t>entry.subscription

    def unsubscribe(self, token):
        """Undo `subscribe`; unknown tokens are ignored."""
        cdef InternalSubscription entry = self._internal.pop(token, None)
        if entry is not None:
            self.sublist.remove(entry.subscription)

    def sublist_stats(self):
        """Figures of the routing table as /subsz reports them."""
        entries, largest, total = self.sublist.cache_stats()
        matches = self.sublist.matches
        return {
            "num_subscriptions": self.subscription_count,
            "num_cache": entries,
            "num_inserts": self.sublist.inserts,
            "num_removes": self.sublist.removes,
            "num_matches": matches,
            "cache_hit_rate": self.sublist.cache_hits / matches if matches else 0.0,
            "max_fanout": largest,
            "avg_fanout": total / entries if entries else 0.0,
        }

    def all_subscriptions(self, offset=0, limit=1024):
        """A page of the client subscriptions, by connection."""
        result = []
        for cid in sorted(self.sessions):
            session = self.sessions[cid]
            if offset >= session.subscription_count:
                offset -= session.subscription_count
                continue
            entries = session.subscriptions()[offset:offset + limit - len(result)]
            result.extend(entries)
            offset = 0
            if len(result) >= limit:
                break
        return result

    def matching(self, str subject not None):
        """The client subscriptions that a message on this subject would reach (all members of queue
        groups).
        """
        cdef bytes name = subject.encode()
        cdef Match* match = self.sublist.match(name, <uint32_t>len(name))
        cdef uint32_t index, member
        cdef QueueGroup* group
        result = []
        if match == NULL:
            raise MemoryError
        for index in range(match.plain.count):
            if match.plain.items[index].owner != NULL:
                result.append(self.router.describe(self, <size_t>match.plain.items[index]))
        for index in range(match.groups.count):
            group = &match.groups.items[index]
            for member in range(group.members.count):
                if group.members.items[member].owner != NULL:
                    result.append(self.router.describe(self, <size_t>group.members.items[member]))
        return result
