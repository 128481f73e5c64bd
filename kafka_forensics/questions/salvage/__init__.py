"""`salvage`: log directories on which a broker starts, made of the best of all copies; a manifest of what came from where."""

from kafka_forensics.questions.salvage.choosing import SalvageOptions, forecast
from kafka_forensics.questions.salvage.log_dirs import METADATA_LOG, TargetDir
from kafka_forensics.questions.salvage.manifest import (
    ELECTION_FILE,
    MANIFEST,
    PassedLimit,
    Refused,
    Salvaged,
    SalvagedPartition,
    document,
)
from kafka_forensics.questions.salvage.salvaging import salvage

__all__ = [
    "ELECTION_FILE",
    "MANIFEST",
    "METADATA_LOG",
    "PassedLimit",
    "Refused",
    "SalvageOptions",
    "Salvaged",
    "SalvagedPartition",
    "TargetDir",
    "document",
    "forecast",
    "salvage",
]
