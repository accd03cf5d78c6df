"""Apply a subject template to bytes, once per message that changes accounts.

Owns the compiled parts of one template, and the hash that partitions subjects. The meaning of a
template, and how it is built, is in `route.translation`.
"""

from libc.stdlib cimport calloc, free
from tradewind.containers.buffer cimport buffer_append, buffer_clear, buffer_init, buffer_free, \
    buffer_size


cdef inline uint32_t token_start(const char* subject, uint32_t size,
                                 uint32_t wanted) noexcept nogil:
    """The index at which a token begins; `size` + 1 if there are fewer tokens."""
    cdef uint32_t at = 0
    while wanted:
        while at < size and subject[at] != 46:
            at += 1
        if at == size:
            return size + 1
        at += 1
        wanted -= 1
    return at


def fnv1a(bytes key not None):
    """The 32 bit hash by Fowler, Noll and Vo."""
    cdef uint32_t value = 2166136261
    cdef const unsigned char* text = key
    cdef Py_ssize_t index
    for index in range(len(key)):
        value = (value ^ text[index]) * <uint32_t>16777619
    return value


cdef class Translator:
    """Translates subjects in bytes; immutable once created."""

    def __init__(self, template not None):
        cdef uint32_t index
        self.template = template
        self.count = <uint32_t>len(template.parts)
        self.rest_from = -1 if template.rest_from is None else template.rest_from
        self.parts = <Part*>calloc(self.count + 1, sizeof(Part))
        if self.parts == NULL:
            raise MemoryError
        for index, part in enumerate(template.parts):
            if isinstance(part, bytes):
                self.parts[index].text = <const char*><bytes>part
                self.parts[index].size = <uint32_t>len(part)
            else:
                self.parts[index].token = part

    def __dealloc__(self):
        free(self.parts)

    cdef int apply(self, const char* subject, uint32_t size, Buffer* result) noexcept nogil:
        """Write the translated subject into `result`, replacing its content; -1 without memory. A
        subject that the source does not match stays unchanged.
        """
        cdef uint32_t index, start, end
        cdef Part* part
        buffer_clear(result)
        for index in range(self.count):
            part = &self.parts[index]
            if index and buffer_append(result, b".", 1) != 0:
                return -1
            if part.text != NULL:
                if buffer_append(result, part.text, part.size) != 0:
                    return -1
                continue
            start = token_start(subject, size, part.token)
            if start > size:
                buffer_clear(result)
                return buffer_append(result, subject, size)
            end = start
            while end < size and subject[end] != 46:
                end += 1
            if buffer_append(result, subject + start, end - start) != 0:
                return -1
        if self.rest_from >= 0:
            start = token_start(subject, size, <uint32_t>self.rest_from)
            if start > size:
                buffer_clear(result)
                return buffer_append(result, subject, size)
            if self.count and buffer_append(result, b".", 1) != 0:
                return -1
            return buffer_append(result, subject + start, size - start)
        return 0

    def translate(self, bytes subject not None):
        """`apply` for Python callers."""
        cdef Buffer result
        buffer_init(&result)
        try:
            if self.apply(subject, <uint32_t>len(subject), &result) != 0:
                raise MemoryError
            return result.data[result.begin:result.begin + buffer_size(&result)]
        finally:
            buffer_free(&result)
