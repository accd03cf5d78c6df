"""The load generator: compiled clients that speak the raw wire protocol with the GIL released.

link (one connection: buffers and parser), flow (publish and subscribe), request (round trips) and
idle (many silent connections) are Cython. benchmarks.build compiles them on first use and makes
them importable from here; nothing in this package measures or starts a server.
"""
