"""Facts with pseudonyms for names, for an export that goes to others."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from threading import Lock

import pyarrow as pa

from kafka_forensics.export.redaction import Redaction
from kafka_forensics.facts.facts import Batches, FactReader, Part
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete


@dataclass(slots=True, kw_only=True)
class RedactedFacts(FactReader):
    """The same facts, in whose rows, directories and manifest pseudonyms stand for names."""

    redaction: Redaction
    _lock: Lock = field(default_factory=Lock)
    """Several files are written at once, and each may meet new names."""

    @classmethod
    def of(cls, reader: FactReader, redaction: Redaction) -> "RedactedFacts":
        """What `reader` reads, with these pseudonyms."""
        redaction.learn(reader.result)
        known = {own.name: getattr(reader, own.name) for own in fields(FactReader)}
        return cls(**known, redaction=redaction)

    @property
    def asked_topic(self) -> str | None:
        """The topics that were asked for."""
        topic = self.options.topic_glob
        return None if topic is None else self.redaction.text(topic)

    def parts(self, name: str) -> Iterator[Part]:
        """The fact in parts. Raises UsageError if there is no such fact."""
        for part in FactReader.parts(self, name):
            with self._lock:
                told = self.redaction.answer({"topic": part.topic, "broker": part.broker})
            yield Part(told["topic"], part.partition, told["broker"], self._told(part.batches))

    def finding_row(self, finding: Finding) -> tuple[object, ...]:
        """The row of `findings` about a finding."""
        with self._lock:
            told = self.redaction.answer(finding)
        return FactReader.finding_row(self, told)

    def gaps(self) -> list[Incomplete]:
        """What could not be read."""
        gaps = FactReader.gaps(self)
        with self._lock:
            return self.redaction.answer(gaps)

    def _told(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with self._lock:
                told = self.redaction.table(batch)
            yield told
