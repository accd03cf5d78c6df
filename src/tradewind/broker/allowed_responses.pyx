"""Subjects that a session may publish to because it received a request (`allow_responses`).

Owns the subjects, and for each the number of responses left and their deadline. It never checks
other permissions: the session does that first.
"""

cdef enum:
    RESPONSES_TRACKED_MAX = 8192


cdef class AllowedResponses:
    """The responses that one session may publish, under one rule.

    Entries are in the order of their deadlines, so expired ones always come first.
    """

    def __init__(self, rule not None):
        self.rule = rule
        self.left = {}

    cdef int allow(self, bytes reply, int64_t now_ns) except -1:
        """Allow responses to a message that was delivered with this reply."""
        deadline = now_ns + self.rule.expires_ns if self.rule.expires_ns >= 0 else -1
        self.left.pop(reply, None)
        self.left[reply] = [self.rule.count_max, deadline]
        while self.left:
            first = next(iter(self.left))
            if len(self.left) <= RESPONSES_TRACKED_MAX and not (
                    0 <= self.left[first][1] <= now_ns):
                break
            del self.left[first]
        return 0

    cdef bint take(self, bytes reply, int64_t now_ns) except -1:
        """Whether a response may be published to the subject; counts it if so."""
        entry = self.left.get(reply)
        if entry is None:
            return False
        if 0 <= entry[1] <= now_ns:
            del self.left[reply]
            return False
        if entry[0] > 0:
            entry[0] -= 1
            if entry[0] == 0:
                del self.left[reply]
        return True
