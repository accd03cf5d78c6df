"""State of a TLS connection; the code and the explanation are in tls_codec.py.

That module is plain Python, compiled, because every record passes through it.
"""

cdef class TlsCodec:
    cdef object _incoming               # ssl.MemoryBIO
    cdef readonly object _outgoing               # ssl.MemoryBIO
    cdef object _context                # ServerContext
    cdef object _shell                  # ssl.SSLContext, or None
    cdef readonly object connection     # ssl.SSLObject
    cdef object _given                  # ciphertext that OpenSSL does not have yet
    cdef Py_ssize_t _given_bytes
    cdef Py_ssize_t _taken_bytes        # the part of it that OpenSSL has
    cdef public bint is_over
    cdef public object fault            # ssl.SSLError, or None

    cpdef object feed(self, ciphertext)
    cpdef object keep(self)
    cdef bint _take_slice(self) except -1
    cpdef bint has_input(self) except -1
    cpdef Py_ssize_t decrypt_into(self, view) except -1
    cpdef list encrypt(self, data)
