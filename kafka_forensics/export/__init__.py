"""Exports of facts: Parquet datasets, tables, and what a notebook shows of a scan."""
