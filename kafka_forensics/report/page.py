"""The HTML page: what happened, the timeline, incidents, partitions that differ, what the page does not prove, its provenance."""

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from markupsafe import Markup
from msgspec import Struct

from kafka_forensics.model.amounts import exact_size, first_few
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import NO_LEADER
from kafka_forensics.questions.report import PageFacts
from kafka_forensics.report import lanes as lane_styles, timeline as timeline_styles
from kafka_forensics.report.document import SEVERITIES, Document, FindingRow, IncidentRow
from kafka_forensics.report.groups import Lost, PartitionGroup, groups_of, loss_of, losses_of, lost_everywhere_of, partition_name
from kafka_forensics.report.lanes import lanes, leader_of, waiting_range
from kafka_forensics.report.picture import Picture
from kafka_forensics.report.templating import render, template_text
from kafka_forensics.report.timeline import timeline
from kafka_forensics.report.words import moment, named, number, plural, shown
from kafka_forensics.wording import overview_of

if TYPE_CHECKING:
    from kafka_forensics.model.findings import TopicPartition

LARGEST: Final = 1 << 20
"""Bytes that a page may have."""
_SIZES: Final = ((200, 40, 1_000, 1), (120, 40, 400, 1), (60, 30, 200, 1), (30, 20, 100, 1), (30, 5, 20, 0.2), (30, 0, 0, 0))
"""(letters of a name, groups drawn, partitions listed, share of all other lists), of which a page takes the first that is small
enough: the last always is, because every value is cut and each other list has one item."""
_FINDINGS: Final = 12
"""Findings of a partition that are shown."""
_OF_NO_PARTITION: Final = 50
_INCIDENTS: Final = 40
_TOPICS: Final = 12
"""Topics of an incident that are shown; up to `_MAX_TOPICS` are folded."""
_MAX_TOPICS: Final = 100
_GAPS: Final = 100
_BROKERS: Final = 200
_HASHES: Final = 400
_ABSENT_BROKERS: Final = 20


class Provenance(Struct, frozen=True):
    """Where a report comes from; None and empty: not known."""

    command: str | None = None
    """The command line without credentials."""
    next_command: str | None = None
    """The command of the next step."""
    document: str | None = None
    """The file of a scan's document."""
    records_decoded: bool | None = None
    live: bool = False
    is_by_spark: bool = False
    """Whether Spark's workers judged the copies: they return no plans."""


def page(document: Document, facts: PageFacts, provenance: Provenance) -> str:
    """The page as one HTML document that loads nothing. The same answer gives the same bytes."""
    return _PageBuilder(document, facts, provenance).text()


def svg(picture: Picture, *, style: str = "") -> Markup:
    """A picture as SVG; `style` is the style sheet of a picture outside a page."""
    return render("picture.svg", picture=picture, style=Markup(style)).strip()  # noqa: S704 - our own style sheet


class _PageBuilder:
    """Builds a page of at most `LARGEST` bytes."""

    def __init__(self, document: Document, facts: PageFacts, provenance: Provenance) -> None:
        self._document, self._facts, self._provenance = document, facts, provenance
        findings: defaultdict[TopicPartition, list[FindingRow]] = defaultdict(list)
        partitions = {(row.topic, row.partition) for row in document.partitions}
        self._of_no_partition: list[FindingRow] = []
        for finding in sorted(document.findings, key=lambda finding: SEVERITIES.index(finding.severity)):
            key = (finding.topic or "", -1 if finding.partition is None else finding.partition)
            if finding.severity != "info" and key not in partitions:
                self._of_no_partition.append(finding)
            elif key in partitions:
                findings[key].append(finding)
        self._findings = findings
        waiting = (row for row in document.partitions if row.replicas and all(map(waiting_range, row.replicas)))
        self._waiting = [partition_name(row, 80) for row in waiting]
        """Partitions in which read_committed consumers wait."""
        self._overview = overview_of(document.incidents)
        self._groups = groups_of(document.partitions, losses_of(self._overview), findings, facts.planned)
        self._styles: set[str] = set()
        """Styles of the lanes that were drawn."""

    def text(self) -> str:
        """The page, shortened until it is small enough."""
        for letters, drawn, listed, share in _SIZES:
            findings_per_group = max(listed // max(min(len(self._groups), drawn), 1), 1)
            sections = [self._section(group, letters, findings_per_group) for group in self._groups[:drawn]]
            incidents = [
                self._incident(incident, letters, share) for incident in self._document.incidents[: _count(_INCIDENTS, share)]
            ]
            left_out = [row for group in self._groups[drawn:] for row in group.rows]
            rest = PartitionGroup(left_out, self._groups[0].losses, {}, {}) if left_out else None
            text = str(
                render(
                    "page.html",
                    **self._values,
                    **self._lists(share),
                    incidents=incidents,
                    lane_legend=_legend(lane_styles.LEGEND, self._styles),
                    sections=Markup("\n").join(sections),
                    rest=rest and list(rest.others(0, letters)),
                    rest_title=rest and rest.title(letters),
                )
            )
            if len(text.encode()) <= LARGEST:
                break
        return text

    def _section(self, group: PartitionGroup, letters: int, listed: int) -> Markup:
        row = group.first
        listed = listed if group.lost.at_most else 0
        key = row.topic, row.partition
        findings = [finding for finding in self._findings.get(key, ()) if finding.severity != "info"]
        left_out = Counter(finding.kind for finding in findings[_FINDINGS:])
        planned = self._facts.planned.get(key)
        different = next((row for row in group.rows if (row.topic, row.partition) in self._facts.differences), None)
        picture = lanes(row, findings, planned, lost_everywhere_of(self._document.incidents, key))
        self._styles |= picture.shapes.keys()
        return render(
            "group.html",
            group=group,
            title=group.title(letters),
            row=row,
            facts=self._facts_of(group, letters),
            picture=picture,
            lanes=svg(picture),
            listed=list(group.listed(listed, letters)) if len(group.rows) > 1 else [],
            others=list(group.others(listed, letters)),
            findings=findings[:_FINDINGS],
            left_out=f"and {', '.join(f'{kind} ({count:,})' for kind, count in left_out.most_common())}" if left_out else "",
            different=different and partition_name(different, letters),
            difference=different and self._facts.differences[different.topic, different.partition],
        )

    def _facts_of(self, group: PartitionGroup, letters: int) -> str:
        """The state of the drawn partition, in a line."""
        row = group.first
        largest = ", the largest loss" if group.lost.at_most else ""
        name = f"Drawn: {partition_name(row, letters)}{largest}. " if len(group.rows) > 1 else ""
        planned = self._facts.planned.get((row.topic, row.partition))
        leads = row.leader not in (None, NO_LEADER)
        leader = f"Broker {row.leader} leads" if leads else "No leader" if row.leader == NO_LEADER else "Leader not known"
        assumed = None if leads or planned is None else leader_of(planned)
        facts = [
            leader + ("" if row.leader_epoch is None else f" in leader epoch {row.leader_epoch:,}"),
            *([] if assumed is None else [f"an ordinary start elects broker {shown(assumed.broker)}"]),
            f"ISR {shown(row.isr)}",
            *([] if row.replica_assignment is None else [f"replicas assigned to {shown(row.replica_assignment)}"]),
            f"cleanup.policy {row.cleanup_policy}",
            *([f"high watermark by {row.high_watermark_witness}"] if row.high_watermark_witness else []),
        ]
        return f"{name}{'; '.join(facts)}."

    def _incident(self, incident: IncidentRow, letters: int, share: float) -> dict[str, object]:
        """An incident, with its loss by topic."""
        by_topic: defaultdict[str, Lost] = defaultdict(Lost)
        partitions: Counter[str] = Counter()
        for row in incident.partitions:
            by_topic[row.topic] += loss_of(row, incident)
            partitions[row.topic] += 1
        topics = sorted(by_topic, key=lambda topic: (-by_topic[topic].at_most, topic))
        largest = max((loss.at_most for loss in by_topic.values()), default=0)
        rows = [
            {
                "topic": shown(topic, letters),
                "partitions": partitions[topic],
                "lost": by_topic[topic],
                "proven": by_topic[topic].proven / max(largest, 1) * 100,
                "at_most": by_topic[topic].at_most / max(largest, 1) * 100,
            }
            for topic in topics
        ]
        shown_topics, most_topics = _count(_TOPICS, share), _count(_MAX_TOPICS, share)
        rest = topics[most_topics:]
        more = sum((by_topic[topic] for topic in rest), Lost())
        return {
            "row": incident,
            "lost": loss_of(incident, incident),
            "topics": rows[:shown_topics],
            "folded": rows[shown_topics:most_topics],
            "left_out": f"{plural(len(rest), 'further topic')}: {more}." if rest else "",
        }

    @cached_property
    def _values(self) -> dict[str, object]:
        """Values of the page's template that do not depend on its length."""
        document, facts = self._document, self._facts
        style = template_text("page.css") + template_text("picture.css")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
        overview = self._overview
        starts = [incident.from_ms for incident in document.incidents if incident.lost_at_most]
        history = timeline(facts, next((start for start in starts if start is not None), None))
        return {
            "style": Markup(style),  # noqa: S704 - our own style sheet
            "style_hash": Markup(f"sha256-{digest}"),  # noqa: S704 - base64
            "summary": document.summary,
            "headline": self._headline(),
            "counts": self._counts(),
            "overview": overview,
            "keep_stopped": named(overview.holders) if overview.holders else "every broker" if overview.lost_at_most else "",
            "waiting": len(self._waiting),
            "next_command": self._provenance.next_command,
            "timeline": history,
            "timeline_picture": None if history is None else svg(history.picture),
            "timeline_legend": _legend(timeline_styles.LEGEND, () if history is None else history.picture.shapes),
            "above": lane_styles.ABOVE,
            "lines": timeline_styles.LINES | lane_styles.LINES,
            "limits": list(self._limits()),
            "provenance": list(self._provenance_terms()),
            "tool": f"{document.tool.name} {document.tool.version}",
        }

    def _lists(self, share: float) -> dict[str, object]:
        """Lists of the page's template, with a `share` of their largest length, and what they leave out."""
        document, hashes = self._document, self._facts.hashes or ()
        return {
            "incidents_left_out": _more(document.incidents, _count(_INCIDENTS, share), "incident"),
            "of_no_partition": self._of_no_partition[: _count(_OF_NO_PARTITION, share)],
            "of_no_partition_left_out": _more(self._of_no_partition, _count(_OF_NO_PARTITION, share), "finding"),
            "gaps": document.incomplete[: _count(_GAPS, share)],
            "gaps_left_out": _more(document.incomplete, _count(_GAPS, share), "input"),
            "brokers": document.input.brokers[: _count(_BROKERS, share)],
            "brokers_left_out": _more(document.input.brokers, _count(_BROKERS, share), "broker"),
            "hashes": hashes[: _count(_HASHES, share)],
            "hashes_left_out": _more(hashes, _count(_HASHES, share), "file"),
        }

    def _headline(self) -> str:
        """What happened, in one sentence."""
        incidents = self._document.incidents
        if incidents:
            sentence, _, _ = incidents[0].message.partition(". ")
            return sentence.removesuffix(".") + "."
        if self._document.summary.verdict in ("clean", "info"):
            return "No damage and no loss is in these copies."
        return "These copies could not be read completely." if self._document.incomplete else "See the findings below."

    def _counts(self) -> str:
        """What was scanned, and what was found."""
        totals = self._document.summary
        found = ", ".join(f"{totals.findings[severity]:,} {severity}" for severity in SEVERITIES if totals.findings.get(severity))
        incomplete = f" {plural(len(self._document.incomplete), 'input')} could not be read." if self._document.incomplete else ""
        incidents = plural(len(self._document.incidents), "incident")
        if self._waiting:
            incomplete += f" read_committed consumers wait in {first_few(self._waiting, 5)}."
        return (
            f"{plural(totals.partitions, 'partition')}, {plural(totals.replicas, 'replica')} on {plural(totals.brokers, 'broker')}."
            f" {incidents}; findings: {found or 'none'}.{incomplete}"
        )

    def _limits(self) -> Iterator[str]:
        """Sentences on what the page does not prove."""
        rows, provenance = self._document.partitions, self._provenance
        yield "No file holds the true high watermark. What this page calls committed rests on the witnesses of the findings."
        elected = [row for row in rows if row.topic != CLUSTER_METADATA_TOPIC]
        given = {broker.broker for broker in self._document.input.brokers}
        absent = Counter(node for row in rows for node in row.replica_assignment or () if node not in given)
        for node, count in sorted(absent.items())[:_ABSENT_BROKERS]:
            yield f"Broker {node} has replicas of {plural(count, 'partition')}, and no copy of it was given."
        for count, text in (
            (sum(row.leader is None for row in elected), "no controllers' log names the leader and the ISR"),
            (sum(row.high_watermark_at_least is None for row in elected), "no file holds a high watermark"),
            (sum(row.read != "whole" for row in rows), "a log was not read, or not to its end"),
            (sum(len(row.replicas) < 2 for row in rows), "only one copy was given, and nothing compares with it"),
        ):
            if count:
                yield f"{plural(count, 'partition')}: {text}."
        suspected = sum(finding.confidence == "suspected" for finding in self._document.findings)
        if suspected:
            yield f"{plural(suspected, 'finding')} suspected, not proven: something harmless may look the same."
        if provenance.live:
            yield "The brokers ran while they were copied: files may be of different moments."
        if provenance.records_decoded is False:
            yield "Records were not decoded: headers and checksums of batches were checked."
        if provenance.is_by_spark:
            yield "Spark's workers make no plans: `kafka-forensics report` on the copies shows what elections lose."
        if provenance.document is not None:
            yield "The JSON document of a scan has no plans and no timeline: `kafka-forensics report` on the copies shows both."

    def _provenance_terms(self) -> Iterator[tuple[str, str]]:
        """(term, text) of what was read, when and how."""
        document, provenance, facts = self._document, self._provenance, self._facts
        totals, tool = document.summary, document.tool
        yield "Tool", f"{tool.name} {tool.version}, engine {tool.engine}, schema {document.schema_version}"
        yield "Command", provenance.command or "not known"
        if provenance.document is not None:
            yield "Document", provenance.document
        read = (
            f"{exact_size(totals.bytes_total)} of logs: {number(totals.bytes_decoded)} bytes decoded,"
            f" {number(totals.bytes_damaged)} damaged, {number(totals.bytes_skipped)} skipped;"
            f" {plural(totals.segments, 'segment')}, {number(totals.batches)} batches, {plural(totals.records, 'record')}"
        )
        yield "Read", read
        yield "Time range", f"{moment(facts.oldest_ms)} to {moment(facts.newest_ms)}, by the batches' timestamps"
        if facts.hashes is None:
            yield "SHA-256", "not requested (--hashes)"
            return
        hashed = [(file.sha256, file.path) for file in facts.hashes if file.sha256 is not None]
        digest = hashlib.sha256(b"".join(b"%b  %b\n" % (_encoded(sha256), _encoded(path)) for sha256, path in hashed)).hexdigest()
        yield "SHA-256", f"{digest}, of the list of {plural(len(hashed), 'file')} below as sha256sum prints it, sorted by path"


def _encoded(path: str) -> bytes:
    """A path as the bytes in its file system."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that does not come from a file system
        return path.encode("utf-8", "backslashreplace")


def _legend(meanings: dict[str, str], styles: Collection[str]) -> dict[str, str]:
    """The meanings of the styles in use."""
    return {style: meaning for style, meaning in meanings.items() if style in styles}


def _count(most: int, share: float) -> int:
    return max(int(most * share), 1)


def _more(items: Sequence[object], kept: int, noun: str) -> str:
    return f"{plural(len(items) - kept, f'further {noun}')}." if len(items) > kept else ""
