"""Bytes → facts. Never judges; never raises for what bytes contain: damage is a row."""
