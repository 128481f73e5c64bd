"""`epochs`: leader epochs by every witness."""
