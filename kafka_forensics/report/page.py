"""The HTML page: incidents, a row for every partition, the worst partitions in detail, what it does not prove, its provenance."""

import base64
import hashlib
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from markupsafe import Markup

from kafka_forensics.model.amounts import exact_size
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.questions.report import DRAWN, InputHash, PartitionDetails, severity_order
from kafka_forensics.report.document import SEVERITIES, Document, FindingRow, IncidentPartitionRow, PartitionRow
from kafka_forensics.report.heat_map import HEAT, heat_map
from kafka_forensics.report.lanes import lanes
from kafka_forensics.report.picture import Picture
from kafka_forensics.report.templating import log_end, render, template_text
from kafka_forensics.report.timelines import events_of, leadership, transactions
from kafka_forensics.report.words import moment, number, plural, shown

SMALL: Final = 1_000_000
"""Bytes that a page of up to `_FEW` partitions may have."""
LARGE: Final = 5_000_000
"""Bytes that any page may have."""
_FEW: Final = 1_000
_MANY: Final = 10_000
_ROWS: Final = 10_000
"""Partitions that have a row."""
_SIZES: Final = (
    *((letters, DRAWN, _ROWS) for letters in (300, 120, 60, 30)),
    *((30, drawn, _ROWS) for drawn in (150, 100, 50, 20)),
    *((30, 10, rows) for rows in (5_000, 2_000, 500, 100)),
)
"""(letters of a cell in the table of all partitions, partitions drawn, rows), of which a page takes the first that fit."""
_FINDINGS: Final = 12
"""Findings of a partition that are shown in full."""
_OF_NO_PARTITION: Final = 50
_INCIDENTS: Final = 40
_INCIDENT_PARTITIONS: Final = 20
_GAPS: Final = 100
_BROKERS: Final = 200
_HASHES: Final = 400

LEGEND: Final = (
    ("e0", "one leader epoch"),
    ("e1", "another"),
    ("ls", "log start"),
    ("wm", "the replica's own high watermark"),
    ("hw", "high watermark of the partition, at least"),
    ("so", "last stable offset, where it is another"),
    ("fk", "fork: from here on replicas differ"),
    ("ms", "missing offsets"),
    ("dm", "damaged offsets"),
    ("nr", "not read, or not known"),
    ("ct", "cut by an election"),
    ("lo", "of that, lost: the new leader does not have it"),
    ("ld", "leads"),
    ("is", "in the ISR"),
    ("os", "assigned, and not in the ISR"),
    ("ab", "aborted transaction"),
    ("op", "open transaction"),
)
"""Style → what it means."""
_LINES: Final = frozenset({"ls", "wm", "hw", "so", "fk"})


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a report comes from; None and empty: not known, or not requested."""

    command: str | None = None
    """The command line without credentials."""
    paths: tuple[str, ...] = ()
    """The paths scanned, without credentials."""
    document: str | None = None
    """The file of a scan's document, which has no elections, histories and transactions."""
    oldest_ms: int | None = None
    newest_ms: int | None = None
    records_decoded: bool | None = None
    live: bool = False
    is_by_spark: bool = False
    """Whether Spark's workers judged the copies: they return no elections and transactions."""
    hashes: Sequence[InputHash] | None = None


def page(document: Document, details: Mapping[TopicPartition, PartitionDetails], provenance: Provenance) -> str:
    """The page as one HTML document that loads nothing. The same answer gives the same bytes."""
    return _PageBuilder(document, details, provenance).text()


def allowed(partitions: int) -> int:
    """Most bytes of a page: 1 MB for up to 1,000 partitions, rising to 5 MB for 10,000 and more."""
    part = min(max(partitions - _FEW, 0), _MANY - _FEW)
    return SMALL + (LARGE - SMALL) * part // (_MANY - _FEW)


class _DrawnPartition:
    """The section of one partition with its pictures; `paths` are those scanned, without credentials."""

    def __init__(
        self, anchor: str, row: PartitionRow, findings: list[FindingRow], details: PartitionDetails, paths: tuple[str, ...]
    ) -> None:
        self.anchor, self.row, self.findings, self.details, self.paths = anchor, row, findings, details, paths
        self.lanes = lanes(row, findings, details.planned)
        self.history = leadership(details.control, row.topic, row.partition)
        self.transactions = transactions(row, details.transactions)
        self.events = events_of(details.control)

    @property
    def short_facts(self) -> str:
        """How the replicas agree, and the leader."""
        return f"replicas: {_agreement(self.row)}; leader {shown(self.row.leader)}"

    @property
    def facts(self) -> str:
        """The state of the partition, in a line."""
        row = self.row
        high_watermark = "high watermark not known"
        if row.high_watermark_at_least is not None:
            high_watermark = f"high watermark at least {row.high_watermark_at_least} ({shown(row.high_watermark_witness)})"
        leader = "leader not known"
        if row.leader is not None:
            leader = "no leader" if row.leader == -1 else f"leader {row.leader}"
        facts = [
            f"replicas: {_agreement(row)}",
            high_watermark,
            leader + ("" if row.leader_epoch is None else f" in leader epoch {row.leader_epoch}"),
            f"ISR {shown(row.isr)}",
            f"assigned to {shown(row.replica_assignment)}",
            f"cleanup.policy {row.cleanup_policy}",
            *([f"not read, or not whole: broker {shown(row.not_read)}"] if row.not_read else []),
        ]
        return "; ".join(facts)

    @property
    def plan_command(self) -> str:
        """The command that plans all partitions at once; empty where no copies were scanned or there is nothing to do."""
        planned = self.details.planned
        if not self.paths or planned is None or not planned.matters:
            return ""
        return shlex.join(["kafka-forensics", "plan", *self.paths])

    def text(self, level: int) -> Markup:
        """The section. Level 0: the lanes and the most severe finding; 1: also findings and tables; 2: everything."""
        kept = self.findings[: _FINDINGS if level else 1]
        left_out = Counter(finding.kind for finding in self.findings[len(kept) :])
        picture = self.lanes if level else lanes(self.row, self.findings, self.details.planned, titles=False)
        return render(
            "partition.html",
            section=self,
            row=self.row,
            level=level,
            findings=kept,
            left_out=f"and {', '.join(f'{kind} ({count})' for kind, count in left_out.most_common())}" if left_out else "",
            lanes=svg(picture),
            planned=self.details.planned,
            history=self.history and svg(self.history),
            transactions=self.transactions and svg(self.transactions),
            difference=self.details.difference,
            is_unseen=bool(self.paths) and self.details == PartitionDetails(),
        )


def svg(picture: Picture, *, style: str = "") -> Markup:
    """A picture as SVG; `style` is the style sheet of a picture outside a page."""
    return render("picture.svg", picture=picture, style=Markup(style)).strip()  # noqa: S704 - our own style sheet


class _PageBuilder:
    """Builds a page of at most `allowed` bytes."""

    def __init__(self, document: Document, details: Mapping[TopicPartition, PartitionDetails], provenance: Provenance) -> None:
        self._document, self._provenance = document, provenance
        findings: defaultdict[TopicPartition, list[FindingRow]] = defaultdict(list)
        partitions = {(row.topic, row.partition) for row in document.partitions}
        self._of_no_partition: list[FindingRow] = []
        for finding in sorted(document.findings, key=lambda finding: SEVERITIES.index(finding.severity)):
            key = (finding.topic or "", -1 if finding.partition is None else finding.partition)
            if key in partitions:
                findings[key].append(finding)
            elif finding.severity != "info":
                self._of_no_partition.append(finding)
        self._findings = findings
        self._worst_first = sorted(document.partitions, key=self._severity_order)
        self._sections = [
            _DrawnPartition(
                f"p{number}",
                row,
                self._findings_of(row),
                details.get((row.topic, row.partition), PartitionDetails()),
                provenance.paths,
            )
            for number, row in enumerate(self._worst_first[:DRAWN])
        ]
        self._anchors: dict[TopicPartition, str] = {}

    def _findings_of(self, row: PartitionRow) -> list[FindingRow]:
        return self._findings.get((row.topic, row.partition), [])

    def _severity_order(self, row: PartitionRow) -> tuple[int, int, bool, str, int]:
        """Sort key, the worst first."""
        lost = [
            (finding.offset_start or 0, finding.offset_end) for finding in self._findings_of(row) if finding.severity == "critical"
        ]
        verdict, offsets, disagree = severity_order(row.verdict, lost, row.agreement.kind)
        return -verdict, -offsets, not disagree, row.topic, row.partition

    def text(self) -> str:
        """The page, shortened until it is small enough: first names in the table, then partitions drawn, then rows."""
        limit = allowed(len(self._worst_first))
        sections = [section.text(0) for section in self._sections]
        for letters, drawn, row_count in _SIZES:
            del self._sections[drawn:], sections[drawn:]
            self._anchors.clear()
            self._anchors |= {(section.row.topic, section.row.partition): section.anchor for section in self._sections}
            rows = render("rows.html", rows=[self._table_row(row, letters) for row in self._worst_first[:row_count]])
            text = self._rendered(sections, rows, row_count)
            used = len(text.encode())
            if used <= limit:
                return self._rendered(self._extended(sections, limit - used), rows, row_count)
        return text

    def _extended(self, shortest: Sequence[Markup], spare_bytes: int) -> list[Markup]:
        """The sections, worst first, each at the highest level for which `spare_bytes` are left."""
        sections = list(shortest)
        for level in (1, 2):
            for index, section in enumerate(self._sections):
                longer = section.text(level)
                more = len(longer.encode()) - len(sections[index].encode())
                if more <= spare_bytes:
                    sections[index] = longer
                    spare_bytes -= more
        return sections

    def _table_row(self, row: PartitionRow, letters: int) -> dict[str, str]:
        findings = self._findings_of(row)
        most_severe = findings[0].kind + (f" and {len(findings) - 1} more" if len(findings) > 1 else "") if findings else ""
        replicas = row.replicas[:_INCIDENT_PARTITIONS]
        return {
            "anchor": self._anchors.get((row.topic, row.partition), ""),
            "name": shown(f"{row.topic}-{row.partition}", letters),
            "verdict": row.verdict,
            "agreement": _agreement(row),
            "high_watermark": number(row.high_watermark_at_least),
            "log_ends": shown(
                ", ".join(f"{shown(replica.broker, 20)}: {log_end(replica, 'not read')}" for replica in replicas), letters
            ),
            "most_severe": shown(most_severe, letters),
        }

    def _rendered(self, sections: Sequence[Markup], rows: Markup, rows_shown: int) -> str:
        all_drawn = len(sections) == len(self._worst_first)
        drawn = "All are drawn below." if all_drawn else f"The {number(len(sections))} worst are drawn below."
        values = {
            **self._values,
            "rows": rows,
            "rows_left_out": _more(self._worst_first, rows_shown, "partition"),
            "sections": Markup("\n").join(sections),
            "drawn_note": drawn if sections else "",
        }
        return str(render("page.html", **values))

    @cached_property
    def _values(self) -> dict[str, object]:
        """Values of the page's template that do not depend on its length."""
        document, provenance = self._document, self._provenance
        style = template_text("page.css") + template_text("picture.css")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
        hashes = provenance.hashes or ()
        heat = heat_map(document.partitions, self._findings)
        return {
            "style": Markup(style),  # noqa: S704 - our own style sheet
            "style_hash": Markup(f"sha256-{digest}"),  # noqa: S704 - base64
            "summary": document.summary,
            "headline": self._headline(),
            "incidents": document.incidents[:_INCIDENTS],
            "incidents_left_out": _more(document.incidents, _INCIDENTS, "incident"),
            "most": _INCIDENT_PARTITIONS,
            "link": partial(_link, self._anchors),
            "kinds": self._kinds(),
            "of_no_partition": self._of_no_partition[:_OF_NO_PARTITION],
            "of_no_partition_left_out": _more(self._of_no_partition, _OF_NO_PARTITION, "finding"),
            "heat": None if heat is None else svg(heat),
            "heat_notes": [] if heat is None else heat.notes,
            "heat_legend": HEAT,
            "legend": LEGEND,
            "lines": _LINES,
            "limits": list(self._limits()),
            "gaps": document.incomplete[:_GAPS],
            "gaps_left_out": _more(document.incomplete, _GAPS, "input"),
            "provenance": self._provenance_terms(),
            "brokers": document.input.brokers[:_BROKERS],
            "hashes": hashes[:_HASHES],
            "hashes_left_out": _more(hashes, _HASHES, "file"),
            "tool": f"{document.tool.name} {document.tool.version}",
        }

    def _headline(self) -> str:
        totals = self._document.summary
        found = ", ".join(f"{totals.findings[severity]} {severity}" for severity in SEVERITIES if totals.findings.get(severity))
        incomplete = f" {plural(len(self._document.incomplete), 'input')} could not be read." if self._document.incomplete else ""
        return (
            f"{plural(totals.partitions, 'partition')}, {plural(totals.replicas, 'replica')} on {plural(totals.brokers, 'broker')};"
            f" findings: {found or 'none'}.{incomplete}"
        )

    def _kinds(self) -> list[dict[str, object]]:
        """Findings above `info` in partitions by kind, the most severe first, for documents without incidents."""
        by_kind: dict[tuple[str, str], list[FindingRow]] = {}
        for findings in self._findings.values():
            for finding in findings:
                if finding.severity != "info":
                    by_kind.setdefault((finding.severity, finding.kind), []).append(finding)
        order = sorted(by_kind.items(), key=lambda item: (SEVERITIES.index(item[0][0]), -len(item[1]), item[0][1]))
        return [
            {
                "kind": kind,
                "severity": severity,
                "findings": len(findings),
                "partitions": len({(finding.topic, finding.partition) for finding in findings}),
                "first": findings[0],
            }
            for (severity, kind), findings in order
        ]

    def _limits(self) -> list[str]:
        """Sentences on what the page does not prove."""
        rows, provenance = self._document.partitions, self._provenance
        limits = ["The true high watermark is on no disk: what is said of committed records rests on the witnesses named."]
        elected = [row for row in rows if row.topic != CLUSTER_METADATA_TOPIC]
        given = {broker.broker for broker in self._document.input.brokers}
        absent = Counter(node for row in rows for node in row.replica_assignment or () if node not in given)
        for node, count in sorted(absent.items())[:_INCIDENT_PARTITIONS]:
            limits.append(f"No copy of broker {node} was given, which has replicas of {plural(count, 'partition')}.")
        for count, text in (
            (sum(row.leader is None for row in elected), "no controller's log says who leads, and who is in sync"),
            (sum(row.high_watermark_at_least is None for row in elected), "no file tells a high watermark"),
            (sum(row.read != "whole" for row in rows), "a log was not read, or not to its end"),
            (sum(len(row.replicas) < 2 for row in rows), "one copy was given, so that there is nothing to compare it with"),
        ):
            if count:
                limits.append(f"{plural(count, 'partition')}: {text}.")
        suspected = sum(finding.confidence == "suspected" for finding in self._document.findings)
        if suspected:
            limits.append(f"{plural(suspected, 'finding')} suspected, not proven: something harmless may look the same.")
        if provenance.live:
            limits.append("The copies are of running brokers, so that files may be of different moments.")
        if provenance.records_decoded is False:
            limits.append("Records were not decoded: batches were judged by their frames and checksums.")
        if provenance.is_by_spark:
            limits.append(
                "Spark's workers judged the copies: elections, transactions, bytes and the range of times are not on this page;"
                " kafka-forensics report, which reads copies itself, draws them."
            )
        if provenance.document is not None:
            limits.append(
                "This page was made from a scan's document, which has no elections, leadership over time, transactions or bytes."
            )
        return limits

    def _provenance_terms(self) -> list[tuple[str, str]]:
        """(term, text) of what was read, when and how."""
        document, provenance = self._document, self._provenance
        totals, tool = document.summary, document.tool
        terms = [
            ("Tool", f"{tool.name} {tool.version}, engine {tool.engine}, schema {document.schema_version}"),
            ("Command", provenance.command or "not known"),
        ]
        if provenance.document is not None:
            terms.append(("Document", provenance.document))
        read = (
            f"{exact_size(totals.bytes_total)} of logs: {number(totals.bytes_decoded)} bytes decoded,"
            f" {number(totals.bytes_damaged)} damaged, {number(totals.bytes_skipped)} skipped;"
            f" {plural(totals.segments, 'segment')}, {number(totals.batches)} batches, {plural(totals.records, 'record')}"
        )
        times = f"{moment(provenance.oldest_ms)} to {moment(provenance.newest_ms)}, by the batches' own timestamps"
        terms += [("Read", read), ("Time range", times)]
        if provenance.hashes is None:
            terms.append(("SHA-256", "not asked for (--hashes)"))
        else:
            hashed = [(file.sha256, file.path) for file in provenance.hashes if file.sha256 is not None]
            digest = hashlib.sha256(
                b"".join(b"%b  %b\n" % (_encoded(sha256), _encoded(path)) for sha256, path in hashed)
            ).hexdigest()
            files = plural(len(hashed), "file")
            terms.append(("SHA-256", f"{digest}, of the list of {files} below as sha256sum prints it, sorted by path"))
        return terms


def _link(anchors: Mapping[TopicPartition, str], partition: IncidentPartitionRow) -> Markup:
    """A partition's name, as a link to its section if it is drawn."""
    name = shown(f"{partition.topic}-{partition.partition}")
    anchor = anchors.get((partition.topic, partition.partition))
    return Markup.escape(name) if anchor is None else Markup('<a href="#{}">{}</a>').format(anchor, name)


def _encoded(path: str) -> bytes:
    """A path as the bytes in its file system."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that does not come from a file system
        return path.encode("utf-8", "backslashreplace")


def _more(items: Sequence[object], kept: int, noun: str) -> str:
    return f"{plural(len(items) - kept, f'further {noun}')}." if len(items) > kept else ""


def _agreement(row: PartitionRow) -> str:
    end = row.agreement.common_end_offset
    kind = row.agreement.kind.replace("_", " ")
    return kind if end is None else f"{kind}, equal up to {end}"
