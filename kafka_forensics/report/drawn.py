"""Lanes that stand alone, as notebooks show them."""

from dataclasses import dataclass

from markupsafe import Markup

from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.questions.report import details_of
from kafka_forensics.report.document import partition_of
from kafka_forensics.report.lanes import lanes
from kafka_forensics.report.page import svg
from kafka_forensics.report.picture import Picture
from kafka_forensics.report.templating import text_of


@dataclass(frozen=True, slots=True)
class Lanes:
    """The picture of one partition."""

    picture: Picture

    def _repr_svg_(self) -> str:
        return str(svg(self.picture, style=text_of("picture.css")))

    def _repr_html_(self) -> str:
        notes = Markup("<figcaption>{}</figcaption>").format(" ".join(self.picture.notes)) if self.picture.notes else ""
        return f"<figure>{self._repr_svg_()}{notes}</figure>"


def lanes_of(reader: FactReader, topic: str, partition: int) -> Lanes:
    """The lanes of a partition of a scan, whose logs are read again. Raises UsageError if there is no such partition."""
    found = next((row for row in reader.result.partitions if (row.topic, row.partition) == (topic, partition)), None)
    if found is None:
        names = [f"{row.topic}-{row.partition}" for row in reader.result.partitions]
        name = f"{topic}-{partition}"
        hint = did_you_mean(name, names, otherwise="`partitions` lists what was scanned")
        raise UsageError(f"there is no partition {name!r} in this answer", hint=hint)
    findings = [
        finding for finding in reader.result.findings if (finding.place.topic, finding.place.partition) == (topic, partition)
    ]
    details = details_of(reader.inputs, reader.options, reader.witnesses, (topic, partition))
    row, finding_rows = partition_of(found, findings)
    return Lanes(lanes(row, finding_rows, details.planned))
