"""The options of the format `jetstream`, for reads and for writes."""
