"""A naive model of what a consumer has delivered and what of it is acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field

# The additional time of a wait without a given duration.
WAIT_SLACK_NS = 1_000_000


@dataclass
class Entry:
    consumer_seq: int
    time_ns: int
    # Somebody has named the time, so it is kept to the nanosecond.
    is_exact: bool = False

    def begin(self, now_ns: int) -> None:
        """The wait for it begins now."""
        self.time_ns, self.is_exact = now_ns, False


@dataclass
class AckModel:
    """Dictionaries and lists, walked from end to end for every question."""

    rule: str
    ack_wait_ns: int
    backoff_ns: list[int]
    max_deliver: int
    delivered: tuple[int, int] = (0, 0)
    floor: tuple[int, int] = (0, 0)
    pending: dict[int, Entry] = field(default_factory=dict)
    queue: list[int] = field(default_factory=list)
    redelivered: dict[int, int] = field(default_factory=dict)
    exceeded: list[tuple[int, int]] = field(default_factory=list)

    def deliver(self, seq: int, now_ns: int) -> None:
        consumer_seq = self.delivered[0] + 1
        self.delivered = (consumer_seq, max(seq, self.delivered[1]))
        if self.rule == "none":
            self.floor = (consumer_seq, seq)
        elif seq in self.pending:
            self.pending[seq].begin(now_ns)
            self.redelivered[seq] = self.redelivered.get(seq, 0) + 1
            self._unqueue(seq)
        else:
            self.pending[seq] = Entry(consumer_seq, now_ns)

    def ack(self, seq: int, consumer_seq: int) -> None:
        if self.rule == "none":
            return
        if self.rule == "all":
            if consumer_seq <= self.floor[0] or seq <= self.floor[1]:
                return
            self.floor = (consumer_seq, min(seq, self.delivered[1]))
            for other in [other for other in self.pending if other <= seq]:
                self._remove(other)
                self.redelivered.pop(other, None)
            return
        entry = self.pending.get(seq)
        self.redelivered.pop(seq, None)
        if entry is not None:
            self._remove(seq)
            self._move_floor(entry.consumer_seq, seq)

    def nak(self, seq: int, consumer_seq: int, delay_ns: int, now_ns: int) -> None:
        if not self.floor[0] < consumer_seq <= self.delivered[0] + 1 or seq not in self.pending:
            return
        if delay_ns >= 0:
            self._unqueue(seq)
            entry = self.pending[seq]
            entry.time_ns, entry.is_exact = now_ns + delay_ns - self.wait_ns(seq), True
        elif seq not in self.queue:
            self.queue.append(seq)

    def progress(self, seq: int, now_ns: int) -> None:
        if seq in self.pending:
            self.pending[seq].begin(now_ns)

    def forget(self, seq: int) -> None:
        self.redelivered.pop(seq, None)
        if seq in self.pending:
            entry = self.pending[seq]
            self._remove(seq)
            self._move_floor(entry.consumer_seq, seq)

    def expire(self, now_ns: int) -> None:
        if self.wait_ns(0) == 0:
            return
        for seq in sorted(self.pending):
            if seq in self.queue or self.due_ns(seq) > now_ns:
                continue
            if self.max_deliver and self.deliveries(seq) >= self.max_deliver:
                self._give_up(seq)
            else:
                self.pending[seq].begin(now_ns)
                self.queue.append(seq)

    def next_redelivery(self) -> int:
        while self.queue:
            seq = self.queue[0]
            if not self.max_deliver or self.deliveries(seq) < self.max_deliver:
                return seq
            self._give_up(seq)
        return 0

    def purge(self, first_seq: int, next_seq: int) -> None:
        if self.floor[1] < first_seq - 1:
            gone = [seq for seq in self.pending if seq < first_seq]
            highest = max([self.floor[0], *(self.pending[seq].consumer_seq for seq in gone)])
            self.floor = (highest, first_seq - 1)
            for seq in gone:
                self._remove(seq)
                self.redelivered.pop(seq, None)
        if not self.pending:
            for seq in [seq for seq in self.redelivered if seq < first_seq]:
                del self.redelivered[seq]
            self.delivered = (self.delivered[0], max(self.delivered[1], next_seq - 1))
            self.floor = self.delivered

    def deliveries(self, seq: int) -> int:
        return self.redelivered.get(seq, 0) + 1

    def wait_ns(self, seq: int) -> int:
        if not self.backoff_ns:
            return self.ack_wait_ns
        return self.backoff_ns[min(self.redelivered.get(seq, 0), len(self.backoff_ns) - 1)]

    def due_ns(self, seq: int) -> int:
        entry = self.pending[seq]
        return entry.time_ns + self.wait_ns(seq) + (0 if entry.is_exact else WAIT_SLACK_NS)

    def next_due_ns(self) -> int:
        if self.wait_ns(0) == 0:
            return 0
        return min((self.due_ns(seq) for seq in self.pending if seq not in self.queue), default=0)

    def _give_up(self, seq: int) -> None:
        self.exceeded.append((seq, self.deliveries(seq)))
        self.redelivered[seq] = max(self.redelivered.get(seq, 0), self.max_deliver)
        entry = self.pending[seq]
        self._remove(seq)
        self._move_floor(entry.consumer_seq, seq)

    def _remove(self, seq: int) -> None:
        self._unqueue(seq)
        del self.pending[seq]

    def _unqueue(self, seq: int) -> None:
        if seq in self.queue:
            self.queue.remove(seq)

    def _move_floor(self, consumer_seq: int, seq: int) -> None:
        if not self.pending:
            self.floor = self.delivered
        elif consumer_seq == self.floor[0] + 1:
            self.floor = (consumer_seq, seq)
            behind = [other for other in self.pending if other > seq]
            if behind:
                self.floor = (self.pending[min(behind)].consumer_seq - 1, min(behind) - 1)
