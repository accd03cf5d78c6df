"""The state of runs, as files that other processes can read: status, leases, registrations."""
