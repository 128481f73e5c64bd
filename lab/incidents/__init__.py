"""Incidents of three brokers, played on real clusters; `tests/golden/incidents` stores their log directories."""

from lab.incidents.incidents import INCIDENTS, STORED, VERSION, archive_of, make, truth_of
from lab.incidents.restart import prepare, unpack

__all__ = ["INCIDENTS", "STORED", "VERSION", "archive_of", "make", "prepare", "truth_of", "unpack"]
