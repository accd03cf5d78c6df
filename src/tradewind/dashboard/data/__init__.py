"""The data of the dashboard: requested only while it is being viewed, and cached within limits."""
