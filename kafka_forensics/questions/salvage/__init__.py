"""`salvage`: writes log directories on which brokers start, made of the best parts of all copies, and a manifest."""

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
