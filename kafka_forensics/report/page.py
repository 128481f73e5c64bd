"""The page: what happened, a row for every partition, the worst in detail, what it does not prove and where it comes from."""

import base64
import hashlib
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final

from markupsafe import Markup

from kafka_forensics.model.amounts import exact_size
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import PartitionEvent
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.questions.report import DRAWN, InputHash, PartitionDetails, severity_order
from kafka_forensics.report.document import SEVERITIES, Document, FindingRow, IncidentPartitionRow, PartitionRow, ReplicaRow
from kafka_forensics.report.heat_map import HEAT, heat_map
from kafka_forensics.report.lanes import lanes
from kafka_forensics.report.picture import Picture
from kafka_forensics.report.templating import rendered, text_of
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
"""Letters of a cell in the table of all partitions, partitions drawn, rows: the first that let the page be small enough."""
_FINDINGS: Final = 12
"""Findings of a partition that are told in full."""
_ELSEWHERE: Final = 50
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
    """Where a report comes from; None and empty: not known, or not asked for."""

    command: str | None = None
    """As it can be typed again; without credentials."""
    paths: tuple[str, ...] = ()
    """What was given, without credentials."""
    document: str | None = None
    """The file that a scan's document was read from, in which no elections, histories and transactions are."""
    oldest_ms: int | None = None
    newest_ms: int | None = None
    records_decoded: bool | None = None
    live: bool = False
    is_by_spark: bool = False
    """Whether workers of Spark judged the copies, which keep elections and transactions to themselves."""
    hashes: Sequence[InputHash] | None = None


def page(document: Document, details: Mapping[TopicPartition, PartitionDetails], provenance: Provenance) -> str:
    """The page as one HTML document that loads nothing. The same answer gives the same bytes."""
    return _Page(document, details, provenance).text()


def allowed(partitions: int) -> int:
    """Bytes that the page of so many partitions may have: 1 MB of up to 1,000, 5 MB of 10,000 and more."""
    part = min(max(partitions - _FEW, 0), _MANY - _FEW)
    return SMALL + (LARGE - SMALL) * part // (_MANY - _FEW)


@dataclass(slots=True)
class Section:
    """One partition that is drawn."""

    anchor: str
    row: PartitionRow
    findings: list[FindingRow]
    details: PartitionDetails
    paths: tuple[str, ...] = ()
    lanes: Picture = field(init=False)
    history: Picture | None = field(init=False)
    transactions: Picture | None = field(init=False)
    events: list[PartitionEvent] = field(init=False)

    def __post_init__(self) -> None:
        """Draw it."""
        row, details = self.row, self.details
        self.lanes = lanes(row, self.findings, details.planned)
        self.history = leadership(details.control, row.topic, row.partition)
        self.transactions = transactions(row, details.transactions)
        self.events = events_of(details.control)

    @property
    def short_facts(self) -> str:
        """The least to be known of the partition."""
        return f"replicas: {_agreement(self.row)}; leader {shown(self.row.leader)}"

    @property
    def facts(self) -> str:
        """What is known of the partition, in a line."""
        row = self.row
        least = "high watermark not known"
        if row.high_watermark_at_least is not None:
            least = f"high watermark at least {row.high_watermark_at_least} ({shown(row.high_watermark_witness)})"
        leader = "leader not known"
        if row.leader is not None:
            leader = "no leader" if row.leader == -1 else f"leader {row.leader}"
        said = [
            f"replicas: {_agreement(row)}",
            least,
            leader + ("" if row.leader_epoch is None else f" in leader epoch {row.leader_epoch}"),
            f"ISR {shown(row.isr)}",
            f"assigned to {shown(row.replica_assignment)}",
            f"cleanup.policy {row.cleanup_policy}",
            *([f"not read, or not whole: broker {shown(row.not_read)}"] if row.not_read else []),
        ]
        return "; ".join(said)

    @property
    def plan_command(self) -> str:
        """The command that recommends for all partitions at once; nothing where no copies are known, or there is nothing to do."""
        planned = self.details.planned
        if not self.paths or planned is None or not planned.matters:
            return ""
        return shlex.join(["kafka-forensics", "plan", *self.paths])

    def text(self, level: int) -> Markup:
        """Its markup. Level 0: the lanes, and the gravest finding; 1: findings and tables, too; 2: all."""
        kept = self.findings[: _FINDINGS if level else 1]
        left_out = Counter(finding.kind for finding in self.findings[len(kept) :])
        picture = self.lanes if level else lanes(self.row, self.findings, self.details.planned, titles=False)
        return rendered(
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
    """The markup of a picture; `style`: of one that stands alone."""
    return rendered("picture.svg", picture=picture, style=Markup(style)).strip()  # noqa: S704 - our own style sheet


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table of all partitions."""

    anchor: str
    name: str
    verdict: str
    agreement: str
    least: str
    ends: str
    gravest: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """Findings of one kind, for documents without incidents."""

    kind: str
    severity: str
    findings: int
    partitions: int
    first: FindingRow


class _Page:
    """Puts a page together within the bytes it may have."""

    def __init__(self, document: Document, details: Mapping[TopicPartition, PartitionDetails], provenance: Provenance) -> None:
        self._document, self._provenance = document, provenance
        findings: defaultdict[TopicPartition, list[FindingRow]] = defaultdict(list)
        known = {(row.topic, row.partition) for row in document.partitions}
        self._elsewhere: list[FindingRow] = []
        for finding in sorted(document.findings, key=lambda finding: SEVERITIES.index(finding.severity)):
            where = (finding.topic or "", -1 if finding.partition is None else finding.partition)
            if where in known:
                findings[where].append(finding)
            elif finding.severity != "info":
                self._elsewhere.append(finding)
        self._findings = findings
        self._order = sorted(document.partitions, key=self._gravity)
        self._sections = [
            Section(f"p{number}", row, self._of(row), details.get((row.topic, row.partition), PartitionDetails()), provenance.paths)
            for number, row in enumerate(self._order[:DRAWN])
        ]
        self._anchors: dict[TopicPartition, str] = {}

    def _of(self, row: PartitionRow) -> list[FindingRow]:
        return self._findings.get((row.topic, row.partition), [])

    def _gravity(self, row: PartitionRow) -> tuple[int, int, bool, str, int]:
        """Sort key, the worst first."""
        lost = [(finding.offset_start or 0, finding.offset_end) for finding in self._of(row) if finding.severity == "critical"]
        verdict, offsets, disagree = severity_order(row.verdict, lost, row.agreement.kind)
        return -verdict, -offsets, not disagree, row.topic, row.partition

    def text(self) -> str:
        """The page, shortened where it would be too large: names in the table, then partitions that are drawn, then rows."""
        limit = allowed(len(self._order))
        lean = [section.text(0) for section in self._sections]
        for letters, drawn, rows in _SIZES:
            del self._sections[drawn:], lean[drawn:]
            self._anchors.clear()
            self._anchors |= {(section.row.topic, section.row.partition): section.anchor for section in self._sections}
            listed = self._rows(letters, rows)
            text = self._rendered(lean, listed, rows)
            used = len(text.encode())
            if used <= limit:
                return self._rendered(self._told_further(lean, limit - used), listed, rows)
        return text

    def _told_further(self, lean: Sequence[Markup], room: int) -> list[Markup]:
        """The sections, the worst told in full, and then the others, as long as there is room: so many bytes."""
        told = list(lean)
        for level in (1, 2):
            for at, section in enumerate(self._sections):
                longer = section.text(level)
                more = len(longer.encode()) - len(told[at].encode())
                if more <= room:
                    told[at] = longer
                    room -= more
        return told

    def _rows(self, letters: int, count: int) -> Markup:
        return rendered("rows.html", rows=[self._row(row, letters) for row in self._order[:count]])

    def _row(self, row: PartitionRow, letters: int) -> _Row:
        own = self._of(row)
        gravest = own[0].kind + (f" and {len(own) - 1} more" if len(own) > 1 else "") if own else ""
        ends = ", ".join(f"{shown(replica.broker, 20)}: {_log_end(replica)}" for replica in row.replicas[:_INCIDENT_PARTITIONS])
        return _Row(
            self._anchors.get((row.topic, row.partition), ""),
            shown(f"{row.topic}-{row.partition}", letters),
            row.verdict,
            _agreement(row),
            number(row.high_watermark_at_least),
            shown(ends, letters),
            shown(gravest, letters),
        )

    def _rendered(self, sections: Sequence[Markup], rows: Markup, rows_shown: int) -> str:
        values = self._values
        count = len(self._order)
        drawn = f"The {number(len(sections))} worst are drawn below." if len(sections) < count else "All are drawn below."
        return str(
            rendered(
                "page.html",
                **values,
                rows=rows,
                rows_left_out=_more(self._order, rows_shown, "partition"),
                sections=Markup("\n").join(sections),
                drawn_note=drawn if sections else "",
            )
        )

    @cached_property
    def _values(self) -> dict[str, object]:
        """What the page's template is filled with beside partitions."""
        document, provenance = self._document, self._provenance
        style = text_of("page.css") + text_of("picture.css")
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
            "elsewhere": self._elsewhere[:_ELSEWHERE],
            "elsewhere_left_out": _more(self._elsewhere, _ELSEWHERE, "finding"),
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

    def _kinds(self) -> list[_Kind]:
        """Findings above `info` by kind, the gravest first; of partitions alone, the others are told one by one."""
        by_kind: dict[tuple[str, str], list[FindingRow]] = {}
        for findings in self._findings.values():
            for finding in findings:
                if finding.severity != "info":
                    by_kind.setdefault((finding.severity, finding.kind), []).append(finding)
        order = sorted(by_kind.items(), key=lambda item: (SEVERITIES.index(item[0][0]), -len(item[1]), item[0][1]))
        return [
            _Kind(kind, severity, len(rows), len({(row.topic, row.partition) for row in rows}), rows[0])
            for (severity, kind), rows in order
        ]

    def _limits(self) -> list[str]:
        """What the answer does not prove, and why."""
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
        """Terms and what is said to them."""
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
    """A partition's name, and the way to its section if it is drawn."""
    name = shown(f"{partition.topic}-{partition.partition}")
    anchor = anchors.get((partition.topic, partition.partition))
    return Markup.escape(name) if anchor is None else Markup('<a href="#{}">{}</a>').format(anchor, name)


def _encoded(path: str) -> bytes:
    """A path in the bytes it has in its file system."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # no file system gave that
        return path.encode("utf-8", "backslashreplace")


def _more(items: Sequence[object], kept: int, noun: str) -> str:
    return f"{plural(len(items) - kept, f'further {noun}')}." if len(items) > kept else ""


def _agreement(row: PartitionRow) -> str:
    end = row.agreement.common_end_offset
    kind = row.agreement.kind.replace("_", " ")
    return kind if end is None else f"{kind}, equal up to {end}"


def _log_end(replica: ReplicaRow) -> str:
    if replica.log_end_offset is not None:
        return str(replica.log_end_offset)
    return "not read" if replica.read_end_offset is None else f"read to {replica.read_end_offset}"
