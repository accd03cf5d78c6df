"""What a consumer of a stream sends next, to whom, and what of it is acknowledged."""
