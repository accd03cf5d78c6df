"""When the next message of a consumer may be sent: its rate limit, and the intervals of a replay.

Owns how much of the rate is left and when the message before was sent. Header only, because it is
asked once per message; it reads no clock: the times are those of the turn.
"""

from libc.stdint cimport int64_t, uint64_t
from tradewind.saturated cimport distance, later

cdef enum:
    # A shorter interval between two messages is not replayed.
    REPLAY_DELAY_MIN_NS = 1000000

ctypedef struct Pace:
    double rate                     # bytes per second; 0: no limit
    double burst
    double allowance                # so many bytes may be sent at `allowance_ns`
    int64_t allowance_ns
    uint64_t replay_to              # 0: no replay
    int64_t replayed_timestamp      # of the message sent last, 0: none was
    int64_t replayed_ns             # ... and when


cdef inline void set_pace_rate(Pace* pace, double rate, double burst,
                               int64_t now_ns) noexcept nogil:
    pace.rate = rate
    pace.burst = pace.allowance = burst
    pace.allowance_ns = now_ns


cdef inline int64_t pace_due(Pace* pace, int64_t timestamp, size_t size, int64_t now_ns,
                             int64_t wall_ns) noexcept nogil:
    """When a message may be sent; 0: now."""
    cdef int64_t due_ns, gap_ns
    cdef double needed
    if pace.replay_to and pace.replayed_timestamp:
        gap_ns = distance(pace.replayed_timestamp, timestamp)
        if timestamp > wall_ns:
            gap_ns = 0      # the clock was wrong when it was stored: there was no such pause
        due_ns = later(pace.replayed_ns, gap_ns)
        if gap_ns > REPLAY_DELAY_MIN_NS and now_ns < due_ns:
            return due_ns
    if pace.rate > 0:
        pace.allowance = min(
            pace.burst, pace.allowance + (now_ns - pace.allowance_ns) * pace.rate / 1e9)
        pace.allowance_ns = now_ns
        needed = min(<double>size, pace.burst)
        if pace.allowance < needed:
            return now_ns + <int64_t>((needed - pace.allowance) / pace.rate * 1e9) + 1
    return 0


cdef inline void note_paced(Pace* pace, int64_t timestamp, size_t size,
                            int64_t now_ns) noexcept nogil:
    """Called when a message was sent."""
    pace.replayed_timestamp = timestamp
    pace.replayed_ns = now_ns
    if pace.rate > 0:
        pace.allowance -= size
