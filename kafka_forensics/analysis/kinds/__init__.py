"""Kinds of findings: rows of `catalogue.py`, classes of evidence in `evidence_classes.py`, and pages `KIND.md` for `wording`.

Other code decides by the traits of a kind, never by a list of names.
"""

from kafka_forensics.analysis.kinds.catalogue import CATALOGUE, Kind, finding, kinds_with, with_premises
from kafka_forensics.analysis.kinds.traits import Trait
