"""Messages at rest: blocks in the official format, durable by group commit, never lost silently."""
