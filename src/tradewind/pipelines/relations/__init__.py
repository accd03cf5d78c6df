"""The relations that SQL can name: streams, buckets and folders."""
