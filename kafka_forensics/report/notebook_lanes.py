"""Lanes outside a page, as notebooks show them."""

from markupsafe import Markup
from msgspec import Struct

from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.export.facts.facts import FactReader
from kafka_forensics.questions.report import plan_again
from kafka_forensics.report.document import partition_of
from kafka_forensics.report.lanes import lanes
from kafka_forensics.report.page import svg
from kafka_forensics.report.picture import Picture
from kafka_forensics.report.templating import template_text


class PartitionLanes(Struct, frozen=True):
    """The picture of one partition."""

    picture: Picture

    def _repr_svg_(self) -> str:
        return str(svg(self.picture, style=template_text("picture.css")))

    def _repr_html_(self) -> str:
        notes = Markup("<figcaption>{}</figcaption>").format(" ".join(self.picture.notes)) if self.picture.notes else ""
        return f"<figure>{self._repr_svg_()}{notes}</figure>"


def lanes_of(reader: FactReader, topic: str, partition: int) -> PartitionLanes:
    """The lanes of a scanned partition; reads its logs again. Raises UsageError if there is no such partition."""
    summary = next((row for row in reader.result.partitions if (row.topic, row.partition) == (topic, partition)), None)
    if summary is None:
        names = [f"{row.topic}-{row.partition}" for row in reader.result.partitions]
        name = f"{topic}-{partition}"
        hint = did_you_mean(name, names, otherwise="`partitions` lists what was scanned")
        raise UsageError(f"there is no partition {name!r} in this answer", hint=hint)
    findings = [
        finding for finding in reader.result.findings if (finding.place.topic, finding.place.partition) == (topic, partition)
    ]
    row, finding_rows = partition_of(summary, findings)
    return PartitionLanes(lanes(row, finding_rows, plan_again(reader.inputs, reader.options, reader.witnesses, (topic, partition))))
