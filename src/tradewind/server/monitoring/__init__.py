"""What a server reports about itself: its log, its monitoring ports, its spans."""
