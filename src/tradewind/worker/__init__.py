"""Programs that handle the messages of a consumer, in one process or several."""
