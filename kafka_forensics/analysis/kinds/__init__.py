"""Kinds of findings: one row each in `catalogue.py`, what its evidence holds in `evidence_classes.py`, and its page beside them,
`KIND.md`, of which `wording` makes sentences."""

from kafka_forensics.analysis.kinds.catalogue import CATALOGUE, Kind, finding, on_premises

__all__ = ["CATALOGUE", "Kind", "finding", "on_premises"]
