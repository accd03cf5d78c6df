"""The folder of one stream as a whole: opened, recovered, written, committed, rewritten."""
