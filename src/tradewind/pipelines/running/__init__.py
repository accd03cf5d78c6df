"""Running pipelines: queries, restarts, shared reads, stopping, and what is displayed."""
