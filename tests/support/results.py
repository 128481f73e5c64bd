"""Hand-made scan results, for tests of the outputs."""

from kafka_forensics.analysis.incidents import incidents
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.model.results import (
    Agreement,
    BrokerSummary,
    Incomplete,
    KeyPlacement,
    PartitionSummary,
    ReplicaSummary,
    ScanResult,
    Totals,
    TransactionCounts,
    verdict_of,
)

HOSTILE_TEXT = "\x1b]0;pwned\x07\x1b[31m\x9b5m\x7f\u202e\u2066\u200b\u2028\ud800\r\n\t|`<script>\\&*_"
"""A hostile name: terminal escape sequences, bidirectional marks, forged rows, Markdown."""


def replica(broker: int | str, end: int, epochs: list[tuple[int, int]] | None = None, **given: object) -> ReplicaSummary:
    summary = ReplicaSummary(
        broker=broker,
        log_dir=f"copies/broker-{broker}",
        directory="audit-0",
        log_start_offset=0,
        local_log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        recovery_point=None,
        leader_epochs=epochs or [(0, 0)],
        segments=1,
        batches=2,
        records=end,
        bytes=end * 60,
    )
    for name, value in given.items():
        setattr(summary, name, value)
    return summary


def partition(
    topic: str, number: int, agreement: Agreement, replicas: list[ReplicaSummary], findings: list[Finding]
) -> PartitionSummary:
    """A partition; its verdict follows from the findings in `findings` whose place is this partition."""
    partition_findings = [finding for finding in findings if (finding.place.topic, finding.place.partition) == (topic, number)]
    ends = [replica.high_watermark for replica in replicas if replica.high_watermark is not None]
    witness = f"replication-offset-checkpoint of broker {replicas[0].broker}"
    return PartitionSummary(
        topic=topic,
        partition=number,
        topic_id="q3Vb0Q0BQ7mKk0yJ9wS3tA",
        cleanup_policy="delete",
        verdict=verdict_of(partition_findings),
        high_watermark_at_least=max(ends, default=None),
        high_watermark_witness=witness if ends else None,
        agreement=agreement,
        replicas=replicas,
        key_placement=KeyPlacement("murmur2", 2, 100, None) if topic == "orders" else None,
    )


def lost_records() -> Finding:
    """The finding of an unclean election that lost offsets [300, 370)."""
    place = Place("audit", 0, 2, "copies/broker-2", "audit-0/00000000000000000000.log", 18204, 22409, 300, 370)
    evidence = {
        "offset": 300,
        "versions": [{"brokers": [1], "epoch": 2, "witness": 345}, {"brokers": [2], "epoch": 0, "witness": 370}],
        "truncation_offsets": {"2": 300},
        "held_by": [2],
        "premises": ["not compacted", "one topic id"],
        "producer_id": 4001,
        "first_timestamp_ms": 1767225600123,
    }
    return finding("UNCLEAN_LOSS", place, evidence)


def unclean_result() -> ScanResult:
    """Three brokers, one partition that lost data, one that lags, one damaged, two healthy."""
    crc = {"stored_crc": 0xDEADBEEF, "computed_crc": 0x12345678, "held_by": [1, 3]}
    damaged = [
        finding(
            "BATCH_CRC_MISMATCH",
            Place("orders", 1, 2, "copies/broker-2", "orders-1/00000000000000000000.log", 9000 + n, 9100 + n, 10 * n, 10 * n + 10),
            crc,
        )
        for n in range(5)
    ]
    findings = [
        finding("DIR_NAME_ILLEGAL", Place(broker=3, log_dir="copies/broker-3", file="lost+found"), {"name": "lost+found"}),
        lost_records(),
        finding("SEG_TORN_TAIL", Place("audit", 0, 3, "copies/broker-3", "audit-0/00000000000000000000.log", 18000, 18204)),
        finding("REPLICA_LAGS", Place("clicks", 0, 3, "copies/broker-3", None, None, None, 200, 600), {"behind": 400}),
        *damaged,
    ]
    identical = Agreement("identical", 600)
    partitions = [
        partition(
            "audit",
            0,
            Agreement("conflict", 300, {"1": 2, "2": 0}),
            [replica(1, 345, [(0, 0), (2, 300)]), replica(2, 370), replica(3, 300)],
            findings,
        ),
        partition("clicks", 0, Agreement("prefix", 200), [replica(1, 600), replica(2, 600), replica(3, 200)], findings),
        partition("orders", 0, identical, [replica(broker, 600) for broker in (1, 2, 3)], findings),
        partition("orders", 1, Agreement("conflict", 10), [replica(broker, 600) for broker in (1, 2, 3)], findings),
        partition(
            "payments", 0, identical, [replica(1, 600, transactions=TransactionCounts(3, 1, 1, 0)), replica(2, 600)], findings
        ),
    ]
    replicas = [summary for partition_summary in partitions for summary in partition_summary.replicas]
    size = sum(summary.bytes or 0 for summary in replicas)
    result = ScanResult(
        engine="local",
        brokers=[BrokerSummary(broker, "5L6g3nShT-eMCtK--X86sw", [f"copies/broker-{broker}"], broker != 2) for broker in (1, 2, 3)],
        partitions=partitions,
        findings=sorted(findings, key=Finding.sort_key),
        totals=Totals(
            brokers=3,
            partitions=len(partitions),
            replicas=len(replicas),
            segments=len(replicas),
            batches=2 * len(replicas),
            records=sum(summary.records or 0 for summary in replicas),
            bytes_total=size,
            bytes_decoded=size - 500,
            bytes_damaged=500,
            bytes_skipped=0,
        ),
    )
    return with_incidents(result)


def result_of(*findings: Finding, incomplete: tuple[Incomplete, ...] = ()) -> ScanResult:
    return with_incidents(ScanResult("local", [], [], list(findings), Totals(), list(incomplete)))


def with_incidents(result: ScanResult) -> ScanResult:
    result.incidents = incidents(result.findings)
    return result


def clean_result() -> ScanResult:
    partitions = [partition("orders", number, Agreement("identical", 9), [replica(1, 9), replica(2, 9)], []) for number in (0, 1)]
    return ScanResult("local", [], partitions, [], Totals(brokers=2, partitions=2, replicas=4, records_decoded=True))


def hostile_result() -> ScanResult:
    """A result in which every text taken from evidence is hostile."""
    place = Place(HOSTILE_TEXT, 0, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, 0, 10, 0, 10)
    evidence = {
        "name": HOSTILE_TEXT,
        HOSTILE_TEXT: [HOSTILE_TEXT, {"held_by": HOSTILE_TEXT}],
        "held_by": [HOSTILE_TEXT, 1],
        "reason": HOSTILE_TEXT,
    }
    findings = [
        finding("DIR_NAME_ILLEGAL", place, evidence),
        finding("BATCH_CRC_MISMATCH", place, evidence),
        finding("NODE_ID_CLASH", Place(log_dir=HOSTILE_TEXT), evidence, severity=Severity.CRITICAL),
        finding("FILE_UNKNOWN", Place(HOSTILE_TEXT, 7), {"names": [HOSTILE_TEXT]}),
    ]
    differing = partition(
        HOSTILE_TEXT,
        0,
        Agreement("conflict", 3, {HOSTILE_TEXT: 1}),
        [replica(HOSTILE_TEXT, 5, log_dir=HOSTILE_TEXT), replica(2, 5)],
        findings,
    )
    differing.high_watermark_witness = HOSTILE_TEXT
    identical = partition(HOSTILE_TEXT, 7, Agreement("identical"), [replica(HOSTILE_TEXT, 5)], findings)
    brokers = [BrokerSummary(HOSTILE_TEXT, HOSTILE_TEXT, [HOSTILE_TEXT, HOSTILE_TEXT + "2"], clean_shutdown=False)]
    totals = Totals(brokers=1, partitions=2, replicas=3)
    return with_incidents(
        ScanResult("local", brokers, [differing, identical], findings, totals, [Incomplete(HOSTILE_TEXT, HOSTILE_TEXT)])
    )
