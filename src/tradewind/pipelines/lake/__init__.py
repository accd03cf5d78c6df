"""Lake tables in the formats Delta, Iceberg and Parquet: writing, reading, maintenance."""
