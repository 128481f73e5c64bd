"""`changes`: every replica compared with itself from one snapshot to the next."""
