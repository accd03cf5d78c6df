"""The Spark session of pipelines, the servers they read, and the errors of Spark."""
