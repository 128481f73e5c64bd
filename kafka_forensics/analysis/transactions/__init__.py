"""Transactions of one log: which are open, which were aborted, and what its indexes and snapshots say of them."""
