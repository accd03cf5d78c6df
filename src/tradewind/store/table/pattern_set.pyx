"""Checks whether a subject matches one of many patterns, without comparing each of them.

Owns a set of patterns that does not change, as bits: one per pattern, and for every place in a
subject which patterns have `*` there, which have `>`, and which have a given token. A subject is
matched from its first token on. The patterns that match so far are a row of bits, and each token
leaves those that have it, or `*`, in its place.

Clients choose both the patterns and the subjects, so the cost of a subject must not depend on how
they overlap. A walk through a tree of the patterns follows two ways wherever a pattern has `*`, so
that 8,192 patterns of `a` and `*` cost 16,384 nodes per subject. Here each token costs one bit per
pattern that is long enough to have it: at most a 64th of the tokens of all patterns per subject,
plus the list of a token that few of them have, which is at most a 32nd. Memory grows with the
number of tokens. The hash is seeded.

The longest patterns come first, so that a row has no bits for patterns that have ended, and those
that end in one place are neighbours.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memset
from tradewind.containers.table cimport fold_multiply, hash_bytes

cdef enum:
    # A token that more than one pattern in this many has gets a row of bits instead of a list.
    LISTED_SHARE = 32


cdef inline uint32_t words_for(uint32_t bits) noexcept nogil:
    return (bits + 63) // 64


cdef inline void set_bit(uint64_t* row, uint32_t number) noexcept nogil:
    row[number // 64] |= <uint64_t>1 << (number % 64)


cdef inline uint32_t token_count(const char* text, size_t size) noexcept nogil:
    cdef const char* end = text + size
    cdef uint32_t count = 1
    while True:
        text = <const char*>memchr(text, 46, end - text)
        if text == NULL:
            return count
        text += 1
        count += 1


cdef class PatternSet:
    """A set of valid subjects with or without wildcards; the empty set matches nothing.

    It is built in steps, and must be complete before `matches` is called, by one thread at a time.
    """

    def __init__(self, tuple patterns not None, uint64_t seed):
        cdef size_t capacity = 4
        cdef uint64_t total
        self.patterns = patterns
        self.seed = seed
        total = self._count_widths()
        while capacity < 2 * total:
            capacity *= 2
        if capacity > 0x80000000:
            raise MemoryError
        self.token_mask = <uint32_t>(capacity - 1)
        self.tokens = <PatternToken*>calloc(capacity, sizeof(PatternToken))
        self.links = <PatternLink*>calloc(total + 1, sizeof(PatternLink))
        self.active = <uint64_t*>calloc(words_for(self.widths[0]) + 1, sizeof(uint64_t))
        self.following = <uint64_t*>calloc(words_for(self.widths[0]) + 1, sizeof(uint64_t))
        if self.tokens == NULL or self.links == NULL or self.active == NULL \
                or self.following == NULL:
            raise MemoryError
        self._make_rows()

    def __dealloc__(self):
        free(self.widths)
        free(self.numbers)
        free(self.stars)
        free(self.tails)
        free(self.tokens)
        free(self.links)
        free(self.rows)
        free(self.frequent)
        free(self.active)
        free(self.following)

    cdef uint64_t _count_widths(self) except? 0xFFFFFFFFFFFFFFFF:
        """Count how many patterns have a token in each place; returns the number of all tokens."""
        cdef bytes pattern
        cdef uint64_t total = 0
        cdef uint32_t place, count
        for pattern in self.patterns:
            count = token_count(pattern, <size_t>len(pattern))
            total += count
            self.places = max(self.places, count)
        if total > 0x40000000:
            raise MemoryError
        self.widths = <uint32_t*>calloc(self.places + 1, sizeof(uint32_t))
        if self.widths == NULL:
            raise MemoryError
        for pattern in self.patterns:
            self.widths[token_count(pattern, <size_t>len(pattern)) - 1] += 1
        # Patterns that end in a place, and patterns that end later.
        for place in range(self.places, 0, -1):
            self.widths[place - 1] += self.widths[place]
        return total

    cdef int _make_rows(self) except -1:
        """Allocate rows of bits for `*` and `>`, all clear, and the numbers of the patterns: the
        longest come first.
        """
        cdef uint64_t words = 0
        cdef uint32_t place
        for place in range(self.places):
            words += 2 * words_for(self.widths[place])
        self.rows = <uint64_t*>calloc(words + 1, sizeof(uint64_t))
        self.stars = <uint64_t**>calloc(self.places + 1, sizeof(uint64_t*))
        self.tails = <uint64_t**>calloc(self.places + 1, sizeof(uint64_t*))
        self.numbers = <uint32_t*>calloc(self.places + 1, sizeof(uint32_t))
        if self.rows == NULL or self.stars == NULL or self.tails == NULL or self.numbers == NULL:
            raise MemoryError
        words = 0
        for place in range(self.places):
            self.numbers[place] = self.widths[place + 1]
            self.stars[place] = self.rows + words
            words += words_for(self.widths[place])
            self.tails[place] = self.rows + words
            words += words_for(self.widths[place])
        return 0

    cdef bint build(self, uint64_t tokens_max) except -1:
        """Enter patterns with about this many tokens; returns whether some are left."""
        cdef bytes pattern
        cdef uint32_t last
        cdef uint64_t entered = 0
        while self.added < len(self.patterns):
            if entered >= tokens_max:
                return True
            pattern = <bytes>self.patterns[self.added]
            self.added += 1
            last = token_count(pattern, <size_t>len(pattern)) - 1
            self._add(pattern, <size_t>len(pattern), self.numbers[last])
            self.numbers[last] += 1
            entered += last + 1
        if not self.is_complete:
            self._make_frequent()
            self.is_complete = True
        return False

    cdef void _add(self, const char* at, size_t size, uint32_t number) noexcept nogil:
        cdef const char* end = at + size
        cdef const char* dot
        cdef uint32_t place = 0
        cdef PatternToken* token
        cdef PatternLink* link
        while True:
            dot = <const char*>memchr(at, 46, end - at)
            size = (end if dot == NULL else dot) - at
            if size == 1 and at[0] == 62 and dot == NULL:
                set_bit(self.tails[place], number)
            elif size == 1 and at[0] == 42:
                set_bit(self.stars[place], number)
            else:
                token = self._token(place, at, <uint32_t>size)
                token.text = at
                token.size = <uint32_t>size
                token.place = place
                token.count += 1
                link = &self.links[self.link_count]
                self.link_count += 1
                link.pattern = number
                link.next = token.first
                token.first = self.link_count
            if dot == NULL:
                return
            at = dot + 1
            place += 1

    cdef int _make_frequent(self) except -1:
        """Give each token that many patterns have a row of its own."""
        cdef uint64_t words = 0, index
        cdef uint32_t link
        cdef PatternToken* token
        for index in range(<uint64_t>self.token_mask + 1):
            if self._is_frequent(&self.tokens[index]):
                words += words_for(self.widths[self.tokens[index].place])
        self.frequent = <uint64_t*>calloc(words + 1, sizeof(uint64_t))
        if self.frequent == NULL:
            raise MemoryError
        words = 0
        for index in range(<uint64_t>self.token_mask + 1):
            token = &self.tokens[index]
            if not self._is_frequent(token):
                continue
            token.bits = self.frequent + words
            words += words_for(self.widths[token.place])
            link = token.first
            while link:
                set_bit(token.bits, self.links[link - 1].pattern)
                link = self.links[link - 1].next
        return 0

    cdef bint _is_frequent(self, const PatternToken* token) noexcept nogil:
        return token.text != NULL \
            and <uint64_t>token.count * LISTED_SHARE > self.widths[token.place]

    cdef PatternToken* _token(self, uint32_t place, const char* text,
                              uint32_t size) noexcept nogil:
        """Find the slot of a token in a place, or the free one where it would be."""
        cdef uint64_t seed = fold_multiply(self.seed ^ place, self.seed ^ 0x9E3779B97F4A7C15ull)
        cdef uint32_t index = <uint32_t>hash_bytes(seed, text, size) & self.token_mask
        cdef PatternToken* token
        while True:
            token = &self.tokens[index]
            if token.text == NULL or (token.place == place and token.size == size
                                      and memcmp(token.text, text, size) == 0):
                return token
            index = (index + 1) & self.token_mask

    cdef bint matches(self, const char* subject, uint32_t size) noexcept nogil:
        """Whether a literal subject matches one of the patterns."""
        cdef const char* at = subject
        cdef const char* end = subject + size
        cdef const char* dot
        cdef uint32_t place = 0
        if self.places == 0:
            return False
        memset(self.active, 0xFF, words_for(self.widths[0]) * sizeof(uint64_t))
        while place < self.places:
            if self._has_tail(place):
                return True
            dot = <const char*>memchr(at, 46, end - at)
            if not self._keep(place, at, <uint32_t>((end if dot == NULL else dot) - at)):
                return False
            if dot == NULL:
                return self._has_ended(place)
            at = dot + 1
            place += 1
        return False

    cdef bint _has_tail(self, uint32_t place) noexcept nogil:
        """Whether a pattern that matches so far has `>` here."""
        cdef uint32_t index, words = words_for(self.widths[place])
        cdef uint64_t* tails = self.tails[place]
        cdef uint64_t found = 0
        for index in range(words):
            found |= self.active[index] & tails[index]
        self.work += words
        return found != 0

    cdef bint _keep(self, uint32_t place, const char* text, uint32_t size) noexcept nogil:
        """Keep the patterns that have this token, or `*`, in this place; false if none is left."""
        cdef uint32_t index, link, words = words_for(self.widths[place])
        cdef PatternToken* token = self._token(place, text, size)
        cdef uint64_t* active = self.active
        cdef uint64_t* following = self.following
        cdef uint64_t* stars = self.stars[place]
        cdef uint64_t* bits = token.bits
        cdef uint64_t left = 0, word
        if bits != NULL:
            for index in range(words):
                following[index] = active[index] & (stars[index] | bits[index])
                left |= following[index]
        else:
            for index in range(words):
                following[index] = active[index] & stars[index]
                left |= following[index]
            link = token.first
            while link:
                index = self.links[link - 1].pattern
                word = active[index // 64] & (<uint64_t>1 << (index % 64))
                following[index // 64] |= word
                left |= word
                link = self.links[link - 1].next
            self.work += token.count
        self.work += words
        self.active = following
        self.following = active
        return left != 0

    cdef bint _has_ended(self, uint32_t place) noexcept nogil:
        """Whether a pattern that matches so far has no token after this place."""
        cdef uint32_t first = self.widths[place + 1], end = self.widths[place]
        cdef uint32_t index = first // 64
        cdef uint64_t mask = <uint64_t>-1 << (first % 64)
        while index < words_for(end):
            if self.active[index] & mask:
                return True
            mask = <uint64_t>-1
            index += 1
        return False

    def accepts(self, bytes subject not None):
        """`matches` for Python callers."""
        self.build(<uint64_t>-1)
        return self.matches(subject, <uint32_t>len(subject))

    @property
    def looked_at(self):
        """The words and listed patterns examined for all subjects together; for tests."""
        return self.work
