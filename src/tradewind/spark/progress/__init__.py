"""The progress of queries: batches in a checkpoint, lag, metrics."""
