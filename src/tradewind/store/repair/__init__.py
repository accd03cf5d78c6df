"""What is known about damage, and getting out of damaged blocks what is still good."""
