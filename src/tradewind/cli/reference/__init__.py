"""Commands that need no server: contexts, error codes, schemas, examples."""
