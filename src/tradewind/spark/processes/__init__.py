"""The processes of Spark: the session, Java, and Python processes that start quickly."""
