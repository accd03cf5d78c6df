"""Decides when a turn ends, and passes its output to the links.

Owns the server's only timer, and whether the end of a turn is already scheduled. Everything about
the protocol is in the broker. A turn, as the broker's watch regards it, is one iteration of the
loop, or less.
"""

from collections import deque

from libc.stdint cimport int64_t
from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session
from tradewind.server.links.link_core cimport SessionLink

cdef enum:
    # After this many inputs from one connection alone, the turn does not wait for other
    # connections.
    TALKS_ALONE_MIN = 8
    # One connection is read for at most this long before all others that have sent something.
    READING_NS_MAX = 5_000_000
    # Sessions whose connection is lost, closed in one turn; others follow in the next ones.
    LOST_AT_ONCE_MAX = 128

# A link is held for at most this long at a time.
HOLD_SECONDS = 0.001
# If, because of a bug, the next deadline is unknown, it is checked this often.
LOOK_SECONDS = 1.0
MS_NS = 1_000_000


cdef class TurnLoop:
    """Ends the turns of one server's broker. Nothing happens before `start`."""

    def __init__(self, broker not None):
        self.broker = broker
        self._router = broker.router
        self._watch = broker.watch
        self._turn_end = broker.turn_end
        self._deadlines = broker.deadlines
        self._places = broker.deferred.places
        self._held = []
        self._lost = deque()

    def start(self, loop not None, check_passwords not None):
        """Attach to a loop. `check_passwords` is called if any are pending at the end of a turn."""
        from tradewind.server.links.socket_set import SocketSet

        self._loop = loop
        self._check_passwords = check_passwords
        self.sockets = SocketSet(self, loop)

    def stop(self):
        """Cancel the timers and schedule no more turns."""
        if self._timer is not None:
            self._timer.cancel()
        if self.sockets is not None:
            self.sockets.stop()

    cdef int begin_batch(self) except -1:
        """Called before the ready sockets are read."""
        self._is_in_batch = True
        return 0

    cdef int end_batch(self) except -1:
        """Called when the ready sockets have been read: end the turn, if one of them needs that."""
        self._is_in_batch = False
        if self.batch_has_turn:
            self.batch_has_turn = False
            self._end_turn()
        return 0

    def turn_needed(self):
        """End the turn once every ready socket has been read."""
        if self._is_in_batch:
            self.batch_has_turn = True
        elif not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def input_done(self, link not None):
        """End the turn once every ready socket has been read.

        If a single connection has been sending for a while, there is no other to wait for.
        """
        if self._is_in_batch:
            self.batch_has_turn = True
            return
        if <void*>link != self._talker:
            self._talker = <void*>link
            self._talks = 0
        elif self._talks < TALKS_ALONE_MIN:
            self._talks += 1
        elif not self._turn_scheduled:
            self._end_turn()
            return
        self.turn_needed()

    def _turn(self):
        self._turn_scheduled = False
        self._end_turn()

    def turn_now(self):
        """End the turn before all ready sockets have been read, possibly several times."""
        self._run_turn()
        self.turn_needed()

    def commits_ended(self):
        """End the turn in which acknowledgements were sent."""
        self._watch.saw_commits = True
        self._end_turn()

    cdef int _end_turn(self) except -1:
        self._run_turn()
        self._watch.end_turn()
        return 0

    cdef int _run_turn(self) except -1:
        """Pass every touched session's output to its link, and handle what is due.

        A callback of the end of a turn that asks for another turn gets it in the next iteration of
        the loop.
        """
        if self._is_ending:
            self.turn_needed()
            return 0
        self._is_ending = True
        try:
            return self._finish_turn()
        finally:
            self._is_ending = False

    cdef int _finish_turn(self) except -1:
        cdef Router router = self._router
        cdef Session session
        self._watch.begin()
        self._lost_count = 0
        if self._lost:
            self._close_lost()
        for session in self._turn_end.run():
            if session.link is not None:
                try:
                    link = session.link
                    if isinstance(link, SessionLink):
                        (<SessionLink>link).pass_output()
                    else:
                        link.flush()
                except Exception as error:
                    session.link.give_up(error)
        if self._places.count:
            try:
                self._check_passwords()
            except Exception as error:
                router.faults.contain("password check", error)
        if router.touched or router.resuming or router.internal or router.turn.is_busy() \
                or router.leaving or self._lost or not router.changes.is_empty():
            self.turn_needed()
        return self._set_timer()

    def lost(self, Session session not None, str reason not None):
        """Close a session whose connection is lost; later, if many are lost in this turn."""
        self._lost.append((session, reason))
        if self._lost_count < LOST_AT_ONCE_MAX:
            self._close_lost()
        self.turn_needed()

    cdef int _close_lost(self) except -1:
        """Close sessions of lost connections. Each is removed first: closing one may add others."""
        cdef Session session
        while self._lost and self._lost_count < LOST_AT_ONCE_MAX:
            session, reason = self._lost.popleft()
            self._lost_count += 1
            try:
                session.close(reason)
            except Exception as fault:
                self.broker.session_failed(session, fault)
        return 0

    def has_read_long(self, link not None):
        """Whether other connections should be read before this link continues. Called when a link
        has filled a whole read.
        """
        cdef int64_t now_ns = self.broker.monotonic_ns()
        if <void*>link != self._reader:
            self._reader = <void*>link
            self._reading_since_ns = now_ns
            return False
        if now_ns - self._reading_since_ns < READING_NS_MAX:
            return False
        self._reader = NULL
        return True

    def hold(self, link not None):
        """Release the link after a moment."""
        self._held.append(link)
        if self._release is None:
            self._release = self._loop.call_later(HOLD_SECONDS, self.release_held)

    def release_held(self):
        """Release the held links. Called when their time is over, or when a receiver accepts output
        again.
        """
        cdef list held = self._held
        if held:
            self._held = []
            self._release.cancel()
            self._release = None
            for link in held:
                try:
                    link.release()
                except Exception as error:
                    link.give_up(error)

    def schedule_timer(self):
        """Set the only timer to the earliest deadline."""
        self._set_timer()

    cdef int _set_timer(self) except -1:
        """Call `schedule_timer`, from compiled code."""
        try:
            due_ns = self._turn_end.next_ns()
        except Exception as error:
            self._router.faults.contain("timer", error)
            due_ns = self.broker.monotonic_ns() + <int64_t>(LOOK_SECONDS * 1e9)
        if due_ns is None or (self._timer is not None and <int64_t>due_ns >= self._timer_ns):
            return 0
        if self._timer is not None:
            self._timer.cancel()
        delay_ns = max(due_ns - self.broker.monotonic_ns(), 0)
        if due_ns == self._deadlines.first_ns():
            # Loops count in ms, and uvloop takes the nearest number: a timer that fires early is
            # set again and again until the deadline. Deadlines of the engine stay exact: a replay
            # keeps the intervals between messages.
            delay_ns += -delay_ns % MS_NS
        self._timer_ns = due_ns
        self._timer = self._loop.call_later(delay_ns / 1e9, self.tick)
        return 0

    def tick(self):
        """Called by the timer: handle what is due."""
        self._timer = None
        self._watch.begin()
        try:
            self.broker.tick()
        except Exception as error:
            self._router.faults.contain("tick", error)
        self._end_turn()
