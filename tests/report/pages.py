"""Results with many partitions for report pages, and a parser of pages.

`python -m tests.report.pages` writes the golden lanes.
"""

from collections import Counter
from html.parser import HTMLParser
from typing import Final

from kafka_forensics import scan
from kafka_forensics.model.controller import PartitionControl, PartitionEvent, PartitionHistory, PartitionState
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding, Place, TopicPartition
from kafka_forensics.model.results import Agreement, BrokerSummary, ScanResult, Totals
from kafka_forensics.questions.plan import Planned
from kafka_forensics.questions.report import PartitionDetails, PartitionTransactions, TransactionSpan
from kafka_forensics.replication.planner import PlanPartition, PlanReplica, plan_partition
from tests.support.places import GOLDEN, SAMPLES
from tests.support.results import lost_records, partition, replica

VOID_TAGS: Final = frozenset({"meta", "link", "br", "hr", "img", "input"})
START_MS: Final = 1_795_240_000_000
GOLDEN_PAGES: Final = GOLDEN / "report"
_SAMPLE: Final = SAMPLES / "unclean-election"


def results_with_loss(
    count: int, topic: str = "payments.settled.by-region"
) -> tuple[ScanResult, dict[TopicPartition, PartitionDetails]]:
    """`count` partitions that lost records in an unclean election, with all details that a report can show."""
    findings, partitions = [], []
    template = lost_records()
    details: dict[TopicPartition, PartitionDetails] = {}
    for number in range(count):
        end = 370 + number % 50
        place = Place(topic, number, 2, "copies/broker-2", f"{topic}-{number}/00000000000000000000.log", 0, 99, 300, end)
        finding = Finding(template.kind, template.severity, template.confidence, place, template.evidence)
        findings.append(finding)
        replicas = [replica(1, 345, [(0, 0), (2, 300)]), replica(2, end), replica(3, 300)]
        summary = partition(topic, number, Agreement("conflict", 300, {"1": 2, "2": 0}), replicas, [finding])
        summary.leader, summary.leader_epoch, summary.isr, summary.replica_assignment = 1, 2, [1], [1, 2, 3]
        partitions.append(summary)
        details[topic, number] = _details(topic, number, end)
    brokers = [
        BrokerSummary(number, "5L6g3nShT-eMCtK--X86sw", [f"copies/broker-{number}"], clean_shutdown=True) for number in (1, 2, 3)
    ]
    totals = Totals(brokers=3, partitions=count, replicas=3 * count)
    return ScanResult("local", brokers, partitions, findings, totals), details


def _details(topic: str, number: int, end: int) -> PartitionDetails:
    epochs = ((EpochEntry(0, 0), EpochEntry(2, 300)), (EpochEntry(0, 0),), (EpochEntry(0, 0),))
    logs = zip((1, 2, 3), (345, end, 300), epochs, strict=True)
    replicas = [PlanReplica(broker, 0, log_end, log_end, entries, entries) for broker, log_end, entries in logs]
    plan_input = PlanPartition(topic, number, replicas, {(0, 1): ((300, 345),)})
    spans = [
        TransactionSpan(4000 + index, 0, 10 * index, 10 * index + 4, None if index > 8 else 10 * index + 5) for index in range(12)
    ]
    return PartitionDetails(
        Planned(plan_input, plan_partition(plan_input)), controller_state(30), PartitionTransactions(1, spans, 3)
    )


def controller_state(changes: int) -> PartitionControl:
    """The state and history that a controllers' log has of a partition after `changes` leader changes."""
    events = [
        PartitionEvent(number, START_MS + 1000 * number, "changed", _state(number), is_unclean=number == changes - 1)
        for number in range(changes)
    ]
    return PartitionControl(
        1, changes, [1], None, [1, 2, 3], history=PartitionHistory(events), as_of_ms=START_MS + 1000 * changes + 500
    )


def _state(number: int) -> PartitionState:
    leader = number % 3 + 1
    return PartitionState(leader, number, number, (leader,), (), (), (1, 2, 3), (), (), (), 0)


class Page(HTMLParser):
    """A parsed page: its text, all attributes, and the number of each tag. Asserts that every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        """(tag, name, value)."""
        self.texts: list[str] = []
        self._open: list[str] = []
        self._raw = ""
        self.feed(text)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID_TAGS:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)


def golden_lanes() -> str:
    """The lanes of the partition of the sample that lost records, as SVG."""
    return scan(str(_SAMPLE), topic="audit").lanes("audit", 0)._repr_svg_() + "\n"


if __name__ == "__main__":
    GOLDEN_PAGES.mkdir(exist_ok=True)
    (GOLDEN_PAGES / "audit-0.svg").write_text(golden_lanes(), encoding="utf-8")
