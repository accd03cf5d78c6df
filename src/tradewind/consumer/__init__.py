"""What a consumer of a stream delivers next, to which client, and what has been acknowledged."""
