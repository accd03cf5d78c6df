"""The engine: streams and consumers of all accounts, the API to manage them, and their turns."""
