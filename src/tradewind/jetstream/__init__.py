"""The JetStream engine: streams and consumers of all accounts, their API, and their turns."""
