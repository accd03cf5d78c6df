"""Running tables: the loop that keeps lake tables of streams up to date."""
