"""What needs no server: contexts, error codes, schemas, examples."""
