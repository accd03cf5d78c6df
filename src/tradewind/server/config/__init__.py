"""Configuration files: text to tree (`grammar`), tree to options (`load` and others), checks.

Owns everything between the bytes of a file and a `ServerOptions`; it never opens a socket or a
store. Import the modules themselves: this one stays empty so that `--version` does not pay for
the parser.
"""
