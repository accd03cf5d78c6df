"""The file of a pipeline: reading, checking, and the typed model."""
