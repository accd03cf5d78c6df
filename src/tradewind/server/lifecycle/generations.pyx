"""Move objects to the youngest generation of Python's garbage collector.

Owns the walk over the parts of an object that is no longer used, so that a collection of the
youngest generation can decide whether they are garbage. It frees nothing: the collector, which
counts all references, does. A walk that finds too little or too much costs time or memory, and is
never wrong.
"""

import gc

cdef extern from "Python.h":
    int PyObject_IS_GC(object value)
    int PyObject_GC_IsTracked(object value)
    void PyObject_GC_UnTrack(void *value)
    void PyObject_GC_Track(void *value)


def parts_of(list roots not None, list surroundings not None, Py_ssize_t count_max):
    """The roots and the objects that only the roots should reference, at most `count_max`.

    The walk stops at `surroundings` and at everything that these reference themselves: they are in
    use.
    """
    cdef set seen = {id(gc), id(gc.__dict__)}
    cdef list found = list(roots)
    cdef list border = [*surroundings]
    cdef Py_ssize_t done = 0
    cdef Py_ssize_t end
    cdef object value
    for value in surroundings:
        border += _held_by(value)
    for value in border:
        seen.add(id(value))
    for value in roots:
        seen.add(id(value))
    while done < len(found) < count_max:
        end = len(found)
        for value in gc.get_referents(*found[done:end]):
            if id(value) in seen or not _is_part(value):
                continue
            seen.add(id(value))
            found.append(value)
            if len(found) >= count_max:
                break
        done = end
    return found


cdef list _held_by(owner):
    """The objects that an object references; many attributes are held in a dict of their own."""
    cdef list held = gc.get_referents(owner)
    cdef object value
    for value in held:
        if isinstance(value, dict) and _is_of_attributes(<dict>value, owner):
            return [*held, *(<dict>value).values()]
    return held


cdef bint _is_of_attributes(dict held, owner) except -1:
    """Whether a dict that an object references holds its attributes, and is not one of them."""
    for name, value in held.items():
        return isinstance(name, str) and getattr(owner, name, held) is value
    return False


def make_young(list objects not None):
    """Let the next collection of the youngest generation examine these objects."""
    cdef object value
    for value in objects:
        if PyObject_IS_GC(value) and PyObject_GC_IsTracked(value):
            PyObject_GC_UnTrack(<void *>value)
            PyObject_GC_Track(<void *>value)


cdef bint _is_part(value):
    """Whether a walk continues into the value: never for what cannot be in a cycle, nor for a class
    or a module.
    """
    if not PyObject_IS_GC(value) or not PyObject_GC_IsTracked(value) or isinstance(value, type):
        return False
    if isinstance(value, dict):
        return "__builtins__" not in <dict>value
    return not isinstance(value, type(gc))
