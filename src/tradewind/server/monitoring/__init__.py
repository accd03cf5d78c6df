"""The reports of a server about itself: its log, its monitoring ports, its spans."""
