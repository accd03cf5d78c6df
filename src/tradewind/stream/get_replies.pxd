"""State of the encoder of direct gets; the code and the explanation are in get_replies.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.state cimport Message
from tradewind.store.format.records cimport Record
from tradewind.stream.publish_replies cimport ReplyQueue
from tradewind.containers.buffer cimport Buffer

cdef void write_second(char* at, int64_t second) noexcept nogil


cdef class GetReplies:
    cdef Router router
    cdef Account account
    cdef bytes stream_lines         # "Nats-Stream: ORDERS\r\nNats-Subject: "
    cdef Buffer body                # of the reply that is being sent: header, then payload
    cdef int64_t second             # the time of `second_text`
    cdef char second_text[20]       # 2026-01-31T12:00:00
    cdef readonly uint64_t sent_msgs
    cdef readonly uint64_t sent_bytes
    cdef ReplyQueue held            # what waits for the disk
    cdef uint64_t until_seq         # ... until this message is visible; 0: replies are sent at once

    cdef uint32_t send_bare(self, const char* reply, uint32_t reply_size,
                            const Record* record) except? 0xFFFFFFFF
    cdef uint32_t send_message(self, const char* reply, uint32_t reply_size,
                               const Record* record) except? 0xFFFFFFFF
    cdef uint32_t send_numbered(self, const char* reply, uint32_t reply_size, const Record* record,
                                uint64_t pending, uint64_t last_seq) except? 0xFFFFFFFF
    cdef uint32_t send_end(self, const char* reply, uint32_t reply_size, uint64_t pending,
                           uint64_t last_seq, bint has_up_to, uint64_t up_to) except? 0xFFFFFFFF
    cdef uint32_t send_status(self, const char* reply, uint32_t reply_size,
                              bytes line) except? 0xFFFFFFFF
    cdef size_t pending_at(self, const char* reply, uint32_t reply_size) noexcept
    cdef int release(self) except -1
    cdef int _begin(self, const Record* record) except -1
    cdef char* _write_position(self, char* at, uint64_t pending, uint64_t last_seq) noexcept
    cdef char* _write_time(self, char* at, int64_t time_ns) noexcept
    cdef uint32_t _finish(self, const char* reply, uint32_t reply_size,
                          const Record* record) except? 0xFFFFFFFF
    cdef uint32_t _publish(self, const char* reply, uint32_t reply_size, const char* body,
                           size_t header_size, size_t total_size) except? 0xFFFFFFFF
