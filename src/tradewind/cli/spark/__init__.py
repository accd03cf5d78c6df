"""Commands that run on Spark: pipelines, jobs, SQL, the demo."""
