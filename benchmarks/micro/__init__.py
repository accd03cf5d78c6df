"""Micro benchmarks: single parts of the server in process, without sockets.

They tell where time goes and whether a change helped; whether a user notices is told by the
side-by-side benchmarks. The registry is benchmarks.micro.registry.
"""
