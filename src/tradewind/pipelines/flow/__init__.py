"""The flow of a pipeline as Spark executes it: sources, steps and sinks."""
