"""Leaf node connections: the listener for other servers, and the connections to hubs."""
