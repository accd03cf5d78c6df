"""An account: an isolated subject space with its members and counters.

Owns the account's sublist and the server's own subscriptions in it. It never sees another account:
imports and exports are bridges built by the broker (`broker.bridges`), not lookups made here.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from tradewind.broker.state cimport TAKES_NONE, Carry, Hook
from tradewind.containers.table cimport table_at, table_room
from tradewind.route.sublist cimport (
    SUB_CROSSING, SUB_SHADOW, Match, QueueGroup, Subscription, subject_valid, subscription_free,
    subscription_new)
from tradewind.route.translator cimport Translator

import msgspec

# The subjects of a domain besides the API: buckets and object stores.
cdef tuple DOMAIN_BUCKETS = (b"$KV.", b"$OBJ.", b"$O.")


class AccountLimits(msgspec.Struct, frozen=True):
    """The limits of an account; -1 means no limit."""

    connections_max: int = -1
    subscriptions_max: int = -1
    payload_bytes_max: int = -1
    leafnodes_max: int = -1


class SubscriptionInfo(msgspec.Struct, frozen=True, gc=False):
    """One subscription as monitoring shows it; not tracked by the garbage collector, because there
    may be a million of them.
    """

    subject: str
    queue: str
    sid: str
    msgs: int
    max_msgs: int
    cid: int
    account: str


cdef list described(const Table* subscriptions, uint32_t limit, uint32_t offset, uint64_t cid,
                    str account):
    """The subscriptions of one session, at most `limit` after the first `offset`."""
    cdef uint32_t index, found = 0
    cdef Subscription* subscription
    result = []
    for index in range(table_room(subscriptions)):
        subscription = <Subscription*>table_at(subscriptions, index)
        if subscription != NULL:
            found += 1
            if found <= offset:
                continue
            if found - offset > limit:
                break
            result.append(SubscriptionInfo(
                subscription.subject[:subscription.subject_size].decode("utf-8", "surrogateescape"),
                subscription.queue[:subscription.queue_size].decode("utf-8", "surrogateescape"),
                subscription.sid[:subscription.sid_size].decode("utf-8", "surrogateescape"),
                subscription.delivered, subscription.delivered_max, cid, account))
    return result


class InternalMessage(msgspec.Struct, frozen=True):
    """A message for one of the server's own services; `session` is the publisher if it is a client.
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


cdef class InterestWatch:
    """Waits for the first receiver of a subject."""

    cdef Account account
    cdef bytes subject
    cdef object callback
    cdef object watcher

    def __init__(self, Account account not None, bytes subject not None, callback not None):
        self.account = account
        self.subject = subject
        self.callback = callback
        self.watcher = self.check_interest
        account.sublist.watch(subject, b"", self.watcher)
        account.sublist.watch(b">", b"", self.watcher)

    def check_interest(self):
        """Called when subscriptions have been added or removed."""
        if self.watcher is not None and self.account.sublist.has_interest(self.subject):
            self.cancel()
            self.callback()

    def cancel(self):
        """Stop waiting."""
        if self.watcher is not None:
            self.account.sublist.unwatch(self.subject, b"", self.watcher)
            self.account.sublist.unwatch(b">", b"", self.watcher)
            self.watcher = None


cdef str text_of(const char* data, uint32_t size):
    return data[:size].decode("utf-8", "replace")


cdef size_t add_shadow(Account exporter, bytes remote, const Subscription* subscription,
                       Translator translator, bint is_traceable) except 0:
    """Insert a shadow of `subscription` into the account that its own account imports from, where
    the subject is `remote`. Return it for `drop_shadow`, to be called before either is freed.
    """
    cdef Subscription* shadow = subscription_new(
        remote, <uint32_t>len(remote), subscription.queue, subscription.queue_size, b"", 0)
    if shadow == NULL:
        raise MemoryError
    shadow.owner = subscription.owner
    shadow.kind = SUB_SHADOW
    shadow.is_traceable = is_traceable
    shadow.hook = <void*>subscription
    shadow.handler = NULL if translator is None else <void*>translator
    if exporter.sublist.insert(shadow) != 0:
        subscription_free(shadow)
        raise MemoryError
    exporter.shadow_count += 1
    return <size_t>shadow


cdef int drop_shadow(Account exporter, size_t handle) except -1:
    """Undo `add_shadow`."""
    exporter.sublist.remove(<Subscription*>handle)
    exporter.shadow_count -= 1
    subscription_free(<Subscription*>handle)
    return 0


@cython.no_gc_clear     # sessions cleared in the same cycle still remove their subscriptions
cdef class Account:
    """Created by the broker with the router that delivers for it."""

    def __init__(self, str name not None, router, uint64_t seed, limits=None, cache=True):
        self.name = name
        self.router = router
        self.sublist = Sublist(seed, cache, router.changes)
        self.limits = limits or AccountLimits()
        self.sessions = {}
        self._internal = {}
        self._reaching = {}
        self.domain_prefix = b""
        self.domain_words = {}

    @property
    def session_count(self):
        """Number of open connections."""
        return len(self.sessions)

    @property
    def leaf_count(self):
        """Number of open connections to other servers."""
        return 0 if self.leaves is None else len(self.leaves.sessions)

    @property
    def subscription_count(self):
        """Number of client subscriptions; the server's own are not counted."""
        return self.sublist.count - len(self._internal) - self.shadow_count

    def has_interest(self, str subject not None):
        """Whether anyone would receive a message on this subject."""
        return self.sublist.has_interest(subject.encode())

    def is_subscribed(self, str subject not None):
        """Whether there is a subscription to exactly this subject, without a queue group.

        Such a subscriber knows the subject and waits for messages there. A client that receives all
        its responses, or everything, through one wildcard may not know of the subject yet.
        """
        return self.sublist.is_subscribed(subject.encode())

    def watch(self, bytes subject not None, bytes queue not None, watcher not None):
        """Call `watcher()` at the end of each turn in which exactly this subject (and queue group)
        gained a subscriber or lost its last one. Spurious calls are possible.
        """
        self.sublist.watch(subject, queue, watcher)

    def unwatch(self, bytes subject not None, bytes queue not None, watcher not None):
        """Undo `watch`; an unknown watcher is ignored."""
        self.sublist.unwatch(subject, queue, watcher)

    def watch_interest(self, str subject not None, callback not None):
        """Call `callback()` once, at the end of the turn in which the subject first has a receiver,
        wildcards included. Return a function that cancels this.

        It is not called for interest that already exists. Every new wildcard subscription checks
        all waiting callbacks, so callers must bound their number.
        """
        return InterestWatch(self, subject.encode(), callback).cancel

    def answer_domain(self, bytes prefix not None, dict words not None):
        """Treat `prefix` + subject like the subject, as nats-server maps a domain; b"" stops that.
        `words` are the first tokens of the API, each with whether others follow it.

        `words` are the first ones of the API, each with whether others follow it.
        """
        self.domain_prefix = prefix
        self.domain_size = <uint32_t>len(prefix)
        self.domain_words = words

    cdef bytes meaning_of(self, const char* subject, uint32_t size):
        """The subject that an incoming message stands for; permissions, routing and services see
        only this one. None if it stands for itself. A mapping is not applied to the result of
        another.
        """
        if not may_mean_another(self, subject, size):
            return None
        cdef bytes given = subject[:size]
        cdef bytes mapped
        if self.mappings is not None:
            mapped = self.mappings.map(given)
            if mapped != given:
                return mapped
        if not self.domain_size or not given.startswith(self.domain_prefix):
            return given
        mapped = given[self.domain_size:]
        if mapped.startswith(DOMAIN_BUCKETS):
            return mapped
        word, dot, _ = mapped.partition(b".")
        return b"$JS.API." + mapped if self.domain_words.get(word) is bool(dot) else given

    def members(self):
        """All connections, to clients and to other servers."""
        leaves = () if self.leaves is None else self.leaves.sessions.values()
        return [*self.sessions.values(), *leaves]

    def publish(self, str subject not None, bytes payload not None, str reply="", bytes header=b""):
        """Publish as the server itself and return the number of deliveries."""
        return self.router.publish_internal(
            self, subject.encode("utf-8", "surrogateescape"), payload,
            reply.encode("utf-8", "surrogateescape"), header)

    def ask(self, str subject not None, bytes payload not None, str reply="", bytes header=b""):
        """Publish a request that the server makes of its own services, on behalf of no client."""
        return self.router.ask_internal(
            self, subject.encode("utf-8", "surrogateescape"), payload,
            reply.encode("utf-8", "surrogateescape"), header)

    def subscribe(self, str subject not None, handler, str queue=""):
        """Call `handler(InternalMessage)` for each message, after the turn in which it arrived.
        Return a token for `unsubscribe`.
        """
        return self._add_internal(subject.encode(), NULL, handler, queue.encode())

    cdef size_t attach(self, bytes subject, Hook hook, object target, bytes group=b"",
                       uint8_t takes=TAKES_NONE) except 0:
        """Call `hook` with `target` for each message immediately; `takes` decides about messages
        that consumers deliver. Return a token.
        """
        cdef size_t token = self._add_internal(subject, <void*>hook, target, group)
        (<Subscription*>token).takes = takes
        return token

    cdef int reach_out(self, size_t token) except -1:
        """Let an attached subscription also receive messages through the account's imports,
        including later ones.
        """
        self._reaching[token] = []
        return self._add_shadows(token)

    def reshadow(self):
        """Rebuild the shadows of attached subscriptions. Called when the imports have changed."""
        for token in self._reaching:
            self._drop_shadows(token)
            self._add_shadows(token)

    cdef int _add_shadows(self, size_t token) except -1:
        cdef Subscription* subscription = <Subscription*>token
        if self.bridge is None:
            return 0
        for exporter, remote, translator, is_traceable in self.bridge.reached_by(
                subscription.subject[:subscription.subject_size]):
            self._reaching[token].append((
                exporter,
                add_shadow(exporter, remote, subscription, translator, is_traceable),
                translator))
        return 0

    cdef int _drop_shadows(self, size_t token) except -1:
        for exporter, handle, _ in self._reaching[token]:
            drop_shadow(exporter, handle)
        self._reaching[token] = []
        return 0

    cdef size_t attach_crossing(self, bytes subject, Carry carry, object target) except 0:
        """Call `carry` with `target` once a message on `subject` has been delivered here. Return a
        token.
        """
        cdef size_t token = self._add_internal(subject, <void*>carry, target, b"")
        (<Subscription*>token).kind = SUB_CROSSING
        return token

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
        if token in self._reaching:
            self._drop_shadows(token)
            del self._reaching[token]
        if entry is not None:
            self.sublist.remove(entry.subscription)

    def sublist_stats(self):
        """Figures about the routing table, as /subsz reports them."""
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
        """A page of the client subscriptions, ordered by connection."""
        result = []
        for cid in sorted(self.sessions):
            session = self.sessions[cid]
            if offset >= session.subscription_count:
                offset -= session.subscription_count
                continue
            entries = session.subscriptions(limit - len(result), offset)
            result.extend(entries)
            offset = 0
            if len(result) >= limit:
                break
        return result

    def matching(self, str subject not None):
        """The client subscriptions that a message on this subject could reach, with all members of
        each queue group.
        """
        cdef bytes name = subject.encode()
        cdef Match* match = self.sublist.match(name, <uint32_t>len(name))
        cdef uint32_t index, member
        cdef QueueGroup* group
        result = []
        if match == NULL:
            raise MemoryError
        for index in range(match.plain.count):
            if match.plain.items[index].owner != NULL \
                    and match.plain.items[index].kind != SUB_SHADOW:
                result.append(self.router.describe(self, <size_t>match.plain.items[index]))
        for index in range(match.groups.count):
            group = &match.groups.items[index]
            for member in range(group.members.count):
                if group.members.items[member].owner != NULL \
                        and group.members.items[member].kind != SUB_SHADOW:
                    result.append(self.router.describe(self, <size_t>group.members.items[member]))
        return result
