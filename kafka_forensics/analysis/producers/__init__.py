"""Idempotent producers: sequence numbers and epochs that do not follow."""
