"""Faults that real brokers produce (`lab/broker_faults.py`): what happened, which copy shows it, and the whole result."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.results import ScanResult

FindingRow = tuple[int | None, str, str, int | str | None, int | None, int | None, tuple[int, ...] | None]
"""Partition, kind, severity, broker, first offset, end offset and holders of a finding."""

FORKED, UNCLEAN, AFTER = "forked", "unclean", "after"
DARK, LAST, KNOWN, STANDING = "dark", "last", "known", "standing"
LIVE, STILL, READ = "live", "still", "read"
COPIES: Final = {
    FORKED: "b1, the leader, was killed; b2 and b3 continued",
    UNCLEAN: "b3 was stopped and b1 frozen; b2 continued alone and was killed; b1 restarted and was elected",
    AFTER: "all brokers restarted and were stopped cleanly",
    DARK: "all brokers were in the ISR and were killed at once; b3's disk kept one log only up to its recovery point",
    LAST: "all brokers restarted, b2 and b3 were stopped, b1 was killed, and its disk kept one log only up to its recovery point",
    KNOWN: "b1 restarted and led; eligible leader replicas (KIP-966) are on",
    STANDING: "`last` and `known` again with another topic and without KIP-966, which is off by default before Kafka 4.1",
    LIVE: "all brokers run; the log of one topic of b1 was copied first, then nine records were written to it, then the rest was "
    "copied; scanned with `--live`",
    STILL: "that copy without `--live`",
    READ: "no copy: the scan reads the brokers' directories, and the brokers change them after the first log is read",
}
"""Copy → the state of the brokers when it was made."""
FORK, GROWN = -1, -2
"""Placeholders in a row: the fork offset of `fork`, which depends on a fetch in flight, and the log end of the surviving
history."""
IGNORED_KINDS: Final = frozenset({"INCIDENT_SIGNATURE", "RISKY_CONFIG", "KEY_PLACEMENT"})
"""Kinds that every topic of the laboratory has, or that only group other findings."""
UNNAMED: Final = frozenset({"TXN_HANGING", "TXN_TORN", "TXN_PARTLY_LOST"})
"""Kinds reported for one of several equal copies; any broker is accepted."""


@dataclass(frozen=True, slots=True)
class BrokerCase:
    """A topic in one copy: the fault, what the brokers did, and every finding."""

    fault: str
    done: str
    copy: str
    topic: str
    findings: tuple[FindingRow, ...] = ()

    @property
    def control(self) -> bool:
        """Whether no finding is above `info`."""
        return all(severity == "info" for _, _, severity, *_ in self.findings)


def info_on(
    *brokers: int, kind: str, start: int | None = None, end: int | None = None, partition: int = 0
) -> tuple[FindingRow, ...]:
    """A finding of `info` without holders on each of these brokers."""
    return tuple((partition, kind, "info", broker, start, end, None) for broker in brokers)


def lags(start: int, end: int, *brokers: int, held_by: tuple[int, ...] = (2,), partition: int = 0) -> tuple[FindingRow, ...]:
    """Replicas that end before the longest."""
    return tuple((partition, "REPLICA_LAGS", "info", broker, start, end, held_by) for broker in brokers)


def lost(start: int, end: int, longest: int, partition: int) -> tuple[FindingRow, ...]:
    """An unclean election; the old leader is still in that state, and b3 ends where it did before."""
    return (
        (partition, "UNCLEAN_LOSS", "critical", None, start, end, (2,)),
        (partition, "UNCLEAN_ELECTION", "info", None, start, end, (2,)),
        *lags(start, longest, 3, held_by=(), partition=partition),
    )


CHANGED: Final[tuple[FindingRow, ...]] = tuple((0, "EVIDENCE_CHANGED", "error", broker, None, None, None) for broker in (1, 2, 3))
HANGING: Final[FindingRow] = (0, "TXN_HANGING", "error", None, 5, 8, None)
LATE: Final = info_on(1, 2, 3, kind="TXN_OPEN", start=6, end=9)
LATE_ERROR: Final = tuple((0, "TXN_LATE_WRITE", "error", broker, 6, 9, None) for broker in (1, 2, 3))
SKIPPED: Final = tuple((0, "PRODUCER_SEQ_GAP", "warning", broker, 6, 9, None) for broker in (1, 2, 3))
OPEN: Final = info_on(1, 2, 3, kind="TXN_OPEN", start=0, end=5)
OPEN_TOO: Final = info_on(1, 2, 3, kind="TXN_OPEN", start=0, end=5, partition=1)
ELECTED: Final[FindingRow] = (0, "UNCLEAN_ELECTION", "info", None, None, None, None)
ELECTED_TOO: Final[FindingRow] = (1, *ELECTED[1:])
TWICE_ELECTED: Final = (ELECTED, ELECTED)
LASTING: Final = ("hanging", "skipping", "fenced")
"""Topics whose findings stay the same in every later copy."""
BROKER_CASES: Final = (
    BrokerCase(
        "F15", "segment preallocated, brokers running or killed", FORKED, "reserved", info_on(1, 2, 3, kind="SEG_ZERO_TAIL")
    ),
    BrokerCase("F15", "the same after every start", AFTER, "reserved", (ELECTED,)),
    BrokerCase("F23", "batches of gzip, snappy, lz4 and zstd", FORKED, "codecs", ()),
    BrokerCase("F25", "truncated after a crash, its time index still open", UNCLEAN, "fork", info_on(1, kind="INDEX_MISMATCH")),
    BrokerCase(
        "F35",
        "a leader died with records that nobody had fetched, the next one went on",
        FORKED,
        "fork",
        ((0, "FORK_ABOVE_HW", "info", None, FORK, GROWN, ()),),
    ),
    BrokerCase("F35", "the same once it came back and was truncated", AFTER, "fork", (ELECTED,)),
    BrokerCase(
        "F33",
        "power failure, all in the ISR: a follower lost what it had not flushed",
        DARK,
        "member",
        (
            (0, "HW_BEYOND_LEO", "critical", 3, 20, 40, (1, 2)),
            (0, "ISR_MEMBER_MISSING_COMMITTED", "critical", 3, 20, 40, (1, 2)),
            ELECTED,
        ),
    ),
    BrokerCase(
        "F37",
        "power failure of the last ISR member, which lost its unflushed records",
        LAST,
        "known",
        ((0, "HW_BEYOND_LEO", "critical", 1, 20, 40, (2, 3)), (0, "LRS_RISK", "critical", 1, 20, 40, (2, 3)), *TWICE_ELECTED),
    ),
    BrokerCase(
        "F37",
        "the same, and it led again: with ELR uncleanly, as the last known leader",
        KNOWN,
        "known",
        (
            (0, "UNCLEAN_LOSS", "critical", None, 20, 40, (2, 3)),
            (0, "UNCLEAN_ELECTION", "info", None, 20, 40, (2, 3)),
            *TWICE_ELECTED,
        ),
    ),
    BrokerCase(
        "F37",
        "the same without ELR: it was elected from the ISR",
        STANDING,
        "standing",
        ((0, "LRS_LOSS", "critical", None, 20, 40, (2, 3)), ELECTED, *TWICE_ELECTED),
    ),
    BrokerCase("F36", "unclean election, the old leader dead", UNCLEAN, "loss", lost(60, 90, 90, 0)),
    BrokerCase(
        "F36", "the same, a transaction lost in one of two partitions", UNCLEAN, "pay", (*lags(11, 17, 1, 3), *lost(11, 17, 26, 1))
    ),
    BrokerCase(
        "F36",
        "the same, the marker alone lost in one of two partitions",
        UNCLEAN,
        "torn",
        (
            *lags(10, 11, 1, 3),
            *info_on(1, 3, kind="TXN_OPEN", start=0, end=5),
            *info_on(1, 3, kind="TXN_OPEN", start=0, end=5, partition=1),
            *lost(10, 11, 25, 1),
        ),
    ),
    BrokerCase(
        "F39",
        "topic compacted on two brokers while the third was down",
        UNCLEAN,
        "compacted",
        ((0, "COMPACTION_SKEW", "info", None, 0, 500, None),),
    ),
    BrokerCase("F39", "the same once all compacted it", AFTER, "compacted", (ELECTED,)),
    BrokerCase(
        "F40",
        "topic deleted and created again while b3 was down",
        UNCLEAN,
        "again",
        ((0, "TOPIC_ID_MISMATCH", "error", None, None, None, None), *info_on(1, 2, kind="LEFTOVER_HOLDS_DATA", start=0, end=60)),
    ),
    BrokerCase("F41", "batch of a producer that no coordinator knows, an hour old", FORKED, "hanging", (HANGING,)),
    BrokerCase("F41", "the same after every start and election", AFTER, "hanging", (HANGING, ELECTED)),
    BrokerCase(
        "F41",
        "the same with `--live`: a marker may be on its way",
        LIVE,
        "hanging",
        (*info_on(1, 2, 3, kind="TXN_OPEN", start=5, end=8), ELECTED, *TWICE_ELECTED),
    ),
    BrokerCase("F42", "transaction left open", FORKED, "open", OPEN),
    BrokerCase("F42", "the same after every start and election", AFTER, "open", (*OPEN, ELECTED)),
    BrokerCase("F42", "data after the marker, for less than 20 minutes", FORKED, "late", LATE),
    BrokerCase("F42", "transaction over two partitions, not yet ended", FORKED, "torn", (*OPEN, *OPEN_TOO)),
    BrokerCase(
        "F43", "data of a fenced epoch after the marker, the producer forgotten by then", FORKED, "fenced", (*LATE_ERROR, *LATE)
    ),
    BrokerCase("F45", "sequence numbers skipped, the producer forgotten by then", FORKED, "skipping", SKIPPED),
    BrokerCase(
        "F44",
        "COMMIT marker lost in one of two partitions by an unclean election",
        AFTER,
        "torn",
        ((1, "TXN_TORN", "critical", None, 0, 5, None), ELECTED, ELECTED_TOO),
    ),
    BrokerCase(
        "F44",
        "committed over two partitions, lost in one by an unclean election",
        AFTER,
        "pay",
        ((1, "TXN_PARTLY_LOST", "critical", None, None, None, ()), ELECTED, ELECTED_TOO),
    ),
    BrokerCase(
        "F46",
        "copied file by file while written",
        LIVE,
        "busy",
        (
            *info_on(1, kind="INCONSISTENT_CUT", start=12, end=21),
            *info_on(1, kind="INCONSISTENT_CUT"),
            (0, "ISR_MEMBER_MISSING_COMMITTED", "info", 1, 12, 21, (2, 3)),
        ),
    ),
    BrokerCase(
        "F46",
        "the same judged without `--live`",
        STILL,
        "busy",
        (
            (0, "HW_BEYOND_LEO", "critical", 1, 12, 21, (2, 3)),
            (0, "ISR_MEMBER_MISSING_COMMITTED", "critical", 1, 12, 21, (2, 3)),
            (0, "INDEX_MISMATCH", "warning", 1, None, None, None),
        ),
    ),
    BrokerCase(
        "F46",
        "followers truncated their logs, and their open time indexes still have entries of truncated records",
        STILL,
        "standing",
        (*((0, "INDEX_MISMATCH", "info", broker, None, None, None) for broker in (2, 3)), ELECTED, *TWICE_ELECTED),
    ),
    BrokerCase(
        "F46", "the same with `--live`", LIVE, "standing", (*info_on(2, 3, kind="INCONSISTENT_CUT"), ELECTED, *TWICE_ELECTED)
    ),
    BrokerCase("F46", "records written and replicated while logs are read", READ, "grows", CHANGED),
    BrokerCase("F46", "a log truncated to the new leader's before it is read", READ, "shrinks", CHANGED[:1]),
    BrokerCase("F46", "a topic deleted while its logs are read (incomplete, exit 3)", READ, "vanishes", CHANGED),
    BrokerCase(
        "F47", "topic deleted while b3 was down", UNCLEAN, "gone", info_on(1, 2, kind="LEFTOVER_HOLDS_DATA", start=0, end=60)
    ),
    BrokerCase(
        "F47",
        "the same after b3 marked its copy as a stray",
        AFTER,
        "gone",
        info_on(1, 2, 3, kind="LEFTOVER_HOLDS_DATA", start=0, end=60),
    ),
    BrokerCase(
        "F47",
        "a topic created again, b3's copy of the old one is a stray",
        AFTER,
        "again",
        (*info_on(1, 2, 3, kind="LEFTOVER_HOLDS_DATA", start=0, end=60), ELECTED),
    ),
    BrokerCase("-", "log start moved by DeleteRecords", AFTER, "trim", (ELECTED,)),
    BrokerCase("-", "brokers out of the ISR, one down and one frozen", UNCLEAN, "lag", lags(60, 80, 1, 3)),
    BrokerCase("-", "the same once all are in sync again", AFTER, "lag", (ELECTED,)),
    BrokerCase(
        "-",
        "group committed offsets that an unclean election lost",
        AFTER,
        "loss",
        ((0, "GROUP_OFFSET_BEYOND_LOG", "critical", None, 75, 90, ()), ELECTED),
    ),
)


def above_info(copy: str, topic: str) -> Counter[FindingRow]:
    """The declared findings of a topic in a copy above `info`."""
    findings = (case.findings for case in BROKER_CASES if (case.copy, case.topic) == (copy, topic))
    return Counter(row for rows in findings for row in rows if row[2] != "info")


def answers(result: ScanResult) -> dict[str, Counter[FindingRow]]:
    """Topic → every finding except `IGNORED_KINDS`; of internal topics only findings above `info`.

    EVIDENCE_CHANGED counts only for logs: checkpoints and the controller's log change at any time.
    """
    rows_by_topic: dict[str, Counter[FindingRow]] = {}
    for finding in result.findings:
        place, severity = finding.place, finding.severity.value
        topic, partition = place.topic or "", place.partition
        if finding.kind == "EVIDENCE_CHANGED":
            directory, _, file = (place.file or "").rpartition("/")
            topic, _, number = directory.rpartition("-")
            if not file.endswith(".log") or topic == CLUSTER_METADATA_TOPIC:
                continue
            partition = int(number)
        if finding.kind in IGNORED_KINDS or (topic.startswith("__") and severity == "info"):
            continue
        holders = tuple(sorted(finding.evidence["held_by"])) if "held_by" in finding.evidence else None
        broker = None if finding.kind in UNNAMED else place.broker
        row = (partition, finding.kind, severity, broker, place.offset_start, place.offset_end, holders)
        rows_by_topic.setdefault(topic, Counter())[row] += 1
    return rows_by_topic
