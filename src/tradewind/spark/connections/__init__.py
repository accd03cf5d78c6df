"""Connections and logins of Spark jobs, and what is retried while a server is unreachable."""
