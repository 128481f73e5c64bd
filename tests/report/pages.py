"""Results with many partitions for report pages, and a parser of pages.

`python -m tests.report.pages` writes the golden lanes.
"""

from collections import Counter
from html.parser import HTMLParser
from typing import Final

from kafka_forensics import scan
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.results import Agreement, BrokerSummary, ScanResult, Totals
from kafka_forensics.questions.cluster_history import ClusterHistory, Moment
from kafka_forensics.questions.plan import LossSize, Planned
from kafka_forensics.questions.report import PageFacts
from kafka_forensics.replication.planner import PlanControl, PlanPartition, PlanReplica, plan_partition
from tests.support.places import GOLDEN, SAMPLES
from tests.support.results import lost_records, partition, replica, with_incidents

VOID_TAGS: Final = frozenset({"meta", "link", "br", "hr", "img", "input"})
START_MS: Final = 1_795_240_000_000
GOLDEN_PAGES: Final = GOLDEN / "report"
_SAMPLE: Final = SAMPLES / "unclean-election"


def results_with_loss(count: int, topics: int = 1) -> tuple[ScanResult, PageFacts]:
    """`count` partitions that lost records in an unclean election, with the facts that a report shows of them."""
    findings, partitions = [], []
    template = lost_records()
    facts = PageFacts(history=history(), committed_ms={1: START_MS + 9_000, 2: START_MS + 5_000})
    for number in range(count):
        topic, end = f"payments.settled.by-region.{number % topics}", 370 + number // topics % 50
        place = Place(topic, number // topics, 2, "copies/broker-2", "payments-0/00000000000000000000.log", 0, 99, 300, end)
        evidence = {**template.evidence, "records_held": end - 300}
        finding = Finding(template.kind, template.severity, template.confidence, place, evidence)
        findings.append(finding)
        replicas = [replica(1, 345, [(0, 0), (2, 300)]), replica(2, end), replica(3, 300)]
        summary = partition(topic, number // topics, Agreement("conflict", 300, {"1": 2, "2": 0}), replicas, [finding])
        summary.leader, summary.leader_epoch, summary.isr, summary.replica_assignment = 1, 2, [1], [1, 2, 3]
        partitions.append(summary)
        facts.planned[topic, number // topics] = _planned(topic, number // topics, end)
    brokers = [
        BrokerSummary(number, "5L6g3nShT-eMCtK--X86sw", [f"copies/broker-{number}"], clean_shutdown=True) for number in (1, 2, 3)
    ]
    totals = Totals(brokers=3, partitions=count, replicas=3 * count)
    return with_incidents(ScanResult("local", brokers, partitions, findings, totals)), facts


def _planned(topic: str, number: int, end: int) -> Planned:
    epochs = ((EpochEntry(0, 0), EpochEntry(2, 300)), (EpochEntry(0, 0),), (EpochEntry(0, 0),))
    logs = zip((1, 2, 3), (345, end, 300), epochs, strict=True)
    replicas = [PlanReplica(broker, 0, log_end, log_end, entries, entries) for broker, log_end, entries in logs]
    control = PlanControl(1, 1, 2, (1,), (), (1, 2, 3), None, None)
    plan_input = PlanPartition(topic, number, replicas, {(0, 1): ((300, 345),)}, control)
    plan = plan_partition(plan_input)
    sizes = {
        (loss.start, loss.end, str(loss.held_by[:1])): LossSize(loss.end - loss.start, 0, START_MS + 4_000, START_MS + 5_000)
        for candidate in plan.candidates
        for loss in candidate.losses
    }
    return Planned(plan_input, plan, sizes=sizes)


def history() -> ClusterHistory:
    """Broker 3 stops, then broker 2, and broker 1 is elected from outside the ISR; an hour before, all started."""
    moments = [Moment(START_MS - 3_600_000, unfenced={1, 2, 3})]
    moments.append(Moment(START_MS, fenced={3}, left_isr=Counter({3: 12}), out_of_sync=Counter({3: 12})))
    moments.append(Moment(START_MS + 5_500, fenced={2}, leaderless=12))
    moments.append(Moment(START_MS + 8_000))
    moments[-1].unclean[1].append(("payments", 0))
    return ClusterHistory(moments, START_MS + 9_500)


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
