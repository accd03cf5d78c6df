"""The bytes on disk: records, side files, checksums, compression. Knows no file and no store."""
