"""Checks replication protocols: every history of a small partition, and named scenarios, against what replication promises."""
