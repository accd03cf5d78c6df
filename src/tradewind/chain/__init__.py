"""Hash chains of streams: what their entries, trees, checkpoints and files look like.

Reading and verifying only, in plain Python and without a server: the files, or the pages of entries
that a server sends, can be checked with this package alone. It depends on keys and errors, never on
stores, servers or clients.

`entries` has what is hashed and how, `merkle` the tree over all links with its proofs,
`checkpoints` the signed heads, `files` the folder on disk.
"""
