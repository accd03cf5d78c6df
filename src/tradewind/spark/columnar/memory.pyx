"""Reusable memory for blocks that are read and for columns that are built from them.

Owns pieces of memory, which Arrow and files use as buffers. A piece that is no longer referenced is
handed out again. Fresh memory of this size comes from the system and returns to it, and clearing
and mapping its pages each time costs a fifth of reading a block. A piece still in use is never
handed out: every view of a buffer holds a reference to its piece.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.ref cimport PyObject
from libc.stdlib cimport free, malloc

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject* object)

cdef enum:
    PIECES_MAX = 32
    # Larger pieces are rare and would be kept for nothing.
    PIECE_BYTES_MAX = 134217728
    # A piece is not reused for something much smaller.
    WASTE_MAX = 4
    PAGE_BYTES = 4096
    # The references of `_pieces` and of the variable that examines the piece.
    OWN_REFERENCES = 2


cdef class Piece:
    """Writable bytes."""

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 0, flags)


cdef class Memory:
    """Hands out pieces, preferring those that were released."""

    def __init__(self):
        self._pieces = []

    cpdef Piece take(self, Py_ssize_t size):
        """A piece of this size with undefined content."""
        cdef Piece piece, best = None
        cdef Py_ssize_t index, free_index = -1
        if size < 0:
            raise ValueError(f"no piece has {size} bytes")
        for index in range(len(self._pieces)):
            piece = <Piece>self._pieces[index]
            if piece is best or Py_REFCNT(<PyObject*>piece) != OWN_REFERENCES:
                continue
            free_index = index
            if size <= piece.capacity <= max(size, PAGE_BYTES) * WASTE_MAX \
                    and (best is None or piece.capacity < best.capacity):
                best = piece
        if best is not None:
            best.size = size
            return best
        piece = None
        best = new_piece(size)
        if best.capacity <= PIECE_BYTES_MAX:
            # A piece that did not fit makes way: when sizes change, they change for all pieces.
            if len(self._pieces) < PIECES_MAX:
                self._pieces.append(best)
            elif free_index >= 0:
                self._pieces[free_index] = best
        return best


cdef Piece new_piece(Py_ssize_t size):
    cdef Piece piece = Piece()
    # Slightly larger, because the next request is seldom of exactly the same size.
    piece.capacity = (size + size // 8 + PAGE_BYTES) // PAGE_BYTES * PAGE_BYTES
    piece.data = <char*>malloc(piece.capacity)
    if piece.data == NULL:
        piece.capacity = 0
        raise MemoryError
    piece.size = size
    return piece
