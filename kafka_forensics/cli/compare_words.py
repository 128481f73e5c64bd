"""What the formats of `compare` for people share: who holds the same, a record in a few short words. All of it safe to print."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kafka_forensics.cli.output_words import is_background, is_harmless, name, plural, span
from kafka_forensics.cli.safe_text import printable
from kafka_forensics.export.json_document import rfc3339
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import Read, ReplicaSummary
from kafka_forensics.questions.compare import CONFLICTS, Held, HeldRecord, OffsetRow, OffsetState, SideBySide

COLUMNS: Final = ("offset", "broker", "epoch", "time", "producer", "key", "value", "headers", "remarks")
_OPTIONAL: Final = frozenset({"epoch", "producer", "headers", "remarks"})
_LONG_NAME: Final = 12
_DIGEST_DIGITS: Final = 6
_TOLD: Final = CONFLICTS | {"REPLICA_LAGS", "BATCHES_REENCODED"}
_ALL: Final = "all"
_BEYOND: Final = (OffsetState.BEYOND_LOG_END, OffsetState.NOT_READ)


class Line(NamedTuple):
    """One line of the table: what some replicas hold at an offset, as words by column, or why they hold nothing."""

    offset: int
    differs: bool
    cells: dict[str, str]
    nothing: str | None
    record: HeldRecord | None


def labels(compared: SideBySide) -> list[str]:
    """A short name for each replica: its broker, or `#1` where such names are long."""
    names = [printable(str(replica.broker)) for replica in compared.partition.replicas]
    return [f"#{number}" for number in range(1, len(names) + 1)] if max(map(len, names)) > _LONG_NAME else names


def lines_of(compared: SideBySide) -> list[Line]:
    """A line for each thing held at each offset, replicas that hold the same together."""
    stamps = [rfc3339(held.record.timestamp) for row in compared.rows for held in row.held if held.record is not None]
    date = _common_date(stamps)
    named = labels(compared)
    lines = []
    for row in compared.rows:
        for members, held in groups(row):
            label = _ALL if len(members) == len(named) else ", ".join(named[member] for member in members)
            cells = {"offset": str(row.offset), "broker": label}
            nothing = None
            if held.record is None:
                nothing = _nothing(held, compared.partition.replicas[members[0]])
            else:
                cells |= _cells(held.record, date)
            lines.append(Line(row.offset, row.differs, cells, nothing, held.record))
    return lines


def groups(row: OffsetRow) -> list[tuple[list[int], Held]]:
    """(indexes of the replicas, what they hold) for each thing held at one offset, in the order of the replicas."""
    found: dict[tuple[object, ...], tuple[list[int], Held]] = {}
    for index, held in enumerate(row.held):
        alone = index if held.state in (OffsetState.BEFORE_LOG_START, OffsetState.BEYOND_LOG_END) else None
        found.setdefault((held.state, held.record, alone), ([], held))[0].append(index)
    return list(found.values())


def columns_of(lines: Iterable[Line]) -> list[str]:
    """The columns that say something in any of `lines`."""
    told = {column for line in lines for column, word in line.cells.items() if word}
    return [column for column in COLUMNS if column in told or column not in _OPTIONAL]


def common_date(compared: SideBySide) -> str | None:
    """The one UTC date of all records shown, None if there are several or none."""
    return _common_date([rfc3339(held.record.timestamp) for row in compared.rows for held in row.held if held.record is not None])


def _common_date(stamps: list[str | None]) -> str | None:
    dates = {stamp[:10] for stamp in stamps if stamp}
    return dates.pop() if len(dates) == 1 else None


def _cells(record: HeldRecord, date: str | None) -> dict[str, str]:
    return {
        "epoch": "" if record.partition_leader_epoch < 0 else str(record.partition_leader_epoch),
        "time": _time(record.timestamp, date),
        "producer": _producer(record),
        "key": record.control_record_type or content_words(record.key_size, record.key_digest),
        "value": content_words(record.value_size, record.value_digest),
        "headers": "" if not record.headers_count else f"{record.headers_count} {_short(record.headers_digest)}".rstrip(),
        "remarks": "" if record.is_valid else "CRC wrong",
    }


def _time(timestamp: int, date: str | None) -> str:
    stamp = rfc3339(timestamp)
    if stamp is None:
        return "none" if timestamp == -1 else str(timestamp)
    day, _, moment = stamp.rstrip("Z").partition("T")
    return moment if date else f"{day} {moment}"


def _producer(record: HeldRecord) -> str:
    """`4000/0 #17`: producer id and epoch, and the sequence."""
    if record.producer_id < 0:
        return ""
    sequence = "" if record.sequence < 0 else f" #{record.sequence}"
    return f"{record.producer_id}/{record.producer_epoch}{sequence}"


def content_words(size: int, digest: str | None) -> str:
    """`47 B f83d0a`, `empty` or `null`."""
    if size <= 0:
        return "null" if size < 0 else "empty"
    return f"{size} B {_short(digest)}".rstrip()


def _short(digest: str | None) -> str:
    return "" if digest is None else digest[:_DIGEST_DIGITS]


def _nothing(held: Held, replica: ReplicaSummary) -> str:
    match held.state:
        case OffsetState.BEYOND_LOG_END:
            return f"nothing: its log ends at {replica.log_end_offset}"
        case OffsetState.BEFORE_LOG_START:
            return f"nothing: its log starts at {replica.log_start_offset}"
        case OffsetState.UNREADABLE:
            return "a batch that cannot be decoded"
        case OffsetState.NOT_READ:
            return "not known: its log could not be read"
    return "nothing at this offset"


def told(findings: Iterable[Finding], *, verbose: bool) -> tuple[list[Finding], list[Finding]]:
    """Findings to be told in full, what speaks of the difference first and then worst first, and the rest, all info."""
    every = sorted(findings, key=lambda finding: (finding.kind not in CONFLICTS, -finding.severity.rank, finding.kind))
    shown = [
        finding
        for finding in every
        if verbose or finding.kind in _TOLD or is_background(finding) or finding.severity is not Severity.INFO
    ]
    return shown, [finding for finding in every if finding not in shown]


def difference_sentence(compared: SideBySide) -> str:
    """Where the replicas differ, in a sentence without a full stop."""
    partition = compared.partition
    first, replicas = compared.first_difference, partition.replicas
    starts = [replica.log_start_offset for replica in replicas if replica.log_start_offset is not None]
    ends = [replica.log_end_offset for replica in replicas if replica.log_end_offset is not None]
    read = [replica for replica in replicas if replica.read is not Read.NONE]
    if len(read) < 2:
        which = f"only {plural(len(read), 'replica')}" if read else "no replica"
        return f"nothing could be compared: the log of {which} could be read"
    if first is None:
        start, end = max(starts), min(ends, default=0)
        if end <= start:
            sure = "no difference found where readable" if partition.not_read else "no difference"
            return f"{sure}: no offset is held by all of {plural(len(replicas), 'replica')}"
        same = "the same values in" if partition.agreement.kind == "compacted" else "the same in"
        sure = "no difference" if is_harmless(compared.result.findings) else "no difference found"
        if compared.result.incomplete:
            sure = "no difference found where readable"
        return f"{sure}: {same} {span('offset', start, end)} on {plural(len(read), 'replica')}"
    if any(finding.kind in CONFLICTS for finding in compared.result.findings) or _held_differently(compared):
        return f"first difference at offset {first}"
    short = [label for label, replica in zip(labels(compared), replicas, strict=True) if replica.log_end_offset == first]
    behind = plural(max(ends) - first, "offset")
    who, verb = (f"broker {short[0]} is", "holds") if len(short) == 1 else (f"brokers {', '.join(short)} are", "hold")
    return f"no conflict: {who} {behind} behind and {verb} the same below {first}"


def title(compared: SideBySide) -> str:
    """Where the replicas differ, and what is known to be committed."""
    partition = compared.partition
    text = difference_sentence(compared)
    if partition.high_watermark_at_least is None:
        return text
    witness = f" ({printable(partition.high_watermark_witness)})" if partition.high_watermark_witness else ""
    return f"{text}; offsets below {partition.high_watermark_at_least} were committed{witness}"


def _held_differently(compared: SideBySide) -> bool:
    row = next((offset_row for offset_row in compared.rows if offset_row.offset == compared.first_difference), None)
    return row is not None and len({held.record for held in row.held if held.state not in _BEYOND}) > 1


def summary_line(compared: SideBySide) -> str:
    """`critical: audit-0 on 3 brokers: first difference at offset 300`."""
    partition = compared.partition
    where = name(partition.topic, partition.partition)
    return f"{compared.result.verdict}: {where} on {plural(len(partition.replicas), 'replica')}: {difference_sentence(compared)}"
