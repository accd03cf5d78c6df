"""State of a connection with TLS; the code and the explanation are in tls_pipe.py.

That module is plain Python, compiled, because all bytes of a connection pass through it.
"""

import cython

from tradewind.server.tls.tls_codec cimport TlsCodec

cdef class TlsTransport:
    cdef readonly object _upper         # asyncio.BufferedProtocol or asyncio.Protocol
    cdef bint _is_buffered              # whether it is the former
    cdef object _user                   # TlsUser
    cdef object _settings               # TlsSettings
    cdef object _raw                    # asyncio.Transport of the socket
    cdef object _loop
    cdef str _peer_ip
    cdef object _state                  # TlsStage
    cdef bint _plain_allowed
    cdef TlsCodec _codec                # None until a hello came
    cdef readonly object _timer         # asyncio.TimerHandle, or None
    cdef list _held                     # of bytes: output held back until the handshake ends
    cdef list _hello                    # of bytes: input of the handshake that is not processed yet
    cdef Py_ssize_t _handshake_bytes
    cdef bint _is_pending               # among the connections that are not established
    cdef bint _waits_for_turn
    cdef bint _ticket_waits             # OpenSSL has a ticket to send, with the first output
    cdef bint _read_paused
    cdef bint _write_paused
    cdef object _error                  # Exception, or None

    @cython.locals(codec=TlsCodec)
    cdef object _pump(self)

    @cython.locals(size=Py_ssize_t)
    cdef bint _hand_up(self, TlsCodec codec) except -1

    cdef object _send_output(self)
