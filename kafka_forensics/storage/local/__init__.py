"""Files of this machine: opened by descriptors, read with `pread`, and never followed out of what was given."""

from kafka_forensics.storage.local.directory import LocalSource
from kafka_forensics.storage.local.links import CIRCLE, DANGLING, MAX_LINKS, OUTSIDE, TOO_MANY, Roots

__all__ = ["CIRCLE", "DANGLING", "MAX_LINKS", "OUTSIDE", "TOO_MANY", "LocalSource", "Roots"]
