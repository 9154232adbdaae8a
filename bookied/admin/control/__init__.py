"""One bookie for its operator: itself, its disks, its garbage, and its cluster."""
