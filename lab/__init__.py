"""Runs real Kafka clusters on loopback, breaks them on purpose and copies their logs; makes the samples and golden tables."""
