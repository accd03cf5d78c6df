"""Running a handler for the messages of a consumer: concurrency, retries, order, codecs, ends."""
