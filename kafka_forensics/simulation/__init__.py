"""Histories of a replicated partition: every one of a small size, checked against what replication promises."""
