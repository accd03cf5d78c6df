"""The bytes on disk: records, side files, checksums, compression. It never accesses files or
stores.
"""
