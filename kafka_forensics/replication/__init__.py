"""Kafka's replication rules as pure functions on small values."""
