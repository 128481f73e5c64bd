"""Transactions as all partitions and the coordinators' log show them together."""
