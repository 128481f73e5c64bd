"""Kinds of findings: one row each in `catalogue.py`, what its evidence holds in `evidence_classes.py`, and its page beside them,
`KIND.md`, of which `wording` makes sentences. Other code decides by the traits of a kind, never by a list of names."""

from kafka_forensics.analysis.kinds.catalogue import CATALOGUE, Kind, finding, kinds_with, on_premises
from kafka_forensics.analysis.kinds.traits import Trait

__all__ = ["CATALOGUE", "Kind", "Trait", "finding", "kinds_with", "on_premises"]
