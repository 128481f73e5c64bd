"""Bytes, read only: where evidence comes from and how it is opened without a trace."""
