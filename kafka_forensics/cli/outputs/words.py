"""What the formats for people share: where a finding is, how replicas agree, what a summary says. All of it safe to print."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.streams import printable
from kafka_forensics.errors import TRY_AGAIN, is_transient
from kafka_forensics.evidence.options import listed
from kafka_forensics.export.json_document import severity_counts
from kafka_forensics.model.amounts import first_few, plural, size
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.model.incidents import Incident, IncidentPartition
from kafka_forensics.model.results import Incomplete, PartitionSummary, ReadExtent, ReplicaSummary, ScanResult
from kafka_forensics.storage.local import OUTSIDE
from kafka_forensics.wording import incident_loss, message, rerun_command, severity_order, span

_TOLD_FINDINGS: Final = 20
_NAMED_PARTITIONS: Final = 3
_NAMED_TOPICS: Final = 4
_NAMED_EPOCHS: Final = 3
_NAMED_BROKERS: Final = 6
_SHELL_WORD: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
_TAKES_VALUE: Final = re.compile(r"--(?!live$|whole$|partial$|explain$|all-partitions$|verbose$)[a-z-]+")
"""Of the options that stand in commands of ours those that take a value."""
_GOES_ON: Final = " \\"
_AGREEMENTS: Final = {
    "identical": "the replicas are identical",
    "prefix": "the replicas agree as far as they go",
    "conflict": "the replicas diverge",
    "missing": "some replicas lack records that others have",
    "compacted": "the replicas were compacted differently and hold the same values",
    "content": "the replicas differ in batches of one leader epoch",
    "not_compared": "not all replicas could be compared",
}
_HELD: Final = "the replicas agree in what they still hold"


def headline(partition: PartitionSummary) -> str:
    """How the replicas agree and what is known to be committed, in a sentence without a full stop."""
    agreement = partition.agreement
    if partition.read is ReadExtent.NONE:
        return "nothing of its log could be read" if len(partition.replicas) == 1 else "nothing of any replica's log could be read"
    text = _AGREEMENTS[agreement.kind] if len(partition.replicas) > 1 else "one replica was given"
    if len(partition.replicas) > 1 and agreement.kind in ("identical", "compacted") and partition.verdict in {"error", "critical"}:
        text = _HELD  # what damage or loss hides was not compared
    if agreement.common_end_offset is not None and agreement.kind == "conflict":
        text += f" at offset {agreement.common_end_offset}"
    if (high_watermark := partition.high_watermark_at_least) is not None:
        witness = f" ({printable(partition.high_watermark_witness)})" if partition.high_watermark_witness else ""
        text += f"; offsets below {high_watermark} were committed{witness}"
    return f"{text}; {partition.verdict} of what could be read" if partition.not_read else text


def name(topic: str | None, partition: int | None) -> str:
    """`audit-0`, `audit`, or nothing."""
    return "-".join(printable(str(part)) for part in (topic, partition) if part is not None)


def place_words(place: Place, crowded: Iterable[str]) -> str:
    """`broker 2, audit-0/….log, bytes 0 to 60, offsets 300 to 369`; the log directory too for brokers in `crowded`."""
    words = [] if place.broker is None else [f"broker {printable(str(place.broker))}"]
    path = [place.file] if place.file else []
    if place.log_dir and (not path or place.broker is None or str(place.broker) in crowded):
        path.insert(0, place.log_dir.rstrip("/"))
    if path:
        words.append(printable("/".join(path)))
    spans = span(place.byte_start, place.byte_end, "byte"), span(place.offset_start, place.offset_end, "offset")
    return ", ".join(word for word in (*words, *spans) if word)


def lost_words(incident: Incident, partition: IncidentPartition | None = None) -> str:
    """`70`, `30 to 70`, `up to 70`, nothing for none: how many records, or offsets, are lost, of one of its partitions if given."""
    least, most, _ = incident_loss(partition or incident, incident)
    if not most:
        return ""
    return str(most) if least == most else f"{least} to {most}" if least else f"up to {most}"


def cost_words(incident: Incident) -> str:
    """`30 to 70 committed records`, or offsets where records are not known; nothing for none."""
    _, most, noun = incident_loss(incident, incident)
    return f"{lost_words(incident)} {noun}{'s' if most > 1 else ''}" if most else ""


def crowded_brokers(result: ScanResult) -> frozenset[str]:
    """Brokers with several log directories, whose files need the directory's name."""
    return frozenset(str(broker_summary.broker) for broker_summary in result.brokers if len(broker_summary.log_dirs) > 1)


def replica_words(replica: ReplicaSummary) -> list[str]:
    """A replica in four columns: broker, offsets, high watermark, the rest."""
    start, known = replica.log_start_offset or 0, replica.leader_epochs or []
    latest = known[-_NAMED_EPOCHS:]
    epochs = ", ".join(f"{epoch} from {first}" if first > start else str(epoch) for epoch, first in latest)
    earlier = "..., " if len(known) > len(latest) else ""
    rest = [f"epoch{'s' if len(known) > 1 else ''} {earlier}{epochs}" if epochs else ""]
    local_start = replica.local_log_start_offset or 0
    rest.append(f"in remote storage before {local_start}" if start < local_start else "")
    rest.append(f"{plural(replica.missing_offsets, 'offset')} missing" if replica.missing_offsets else "")
    rest += [
        f"{count} {word} transaction{'s' if count > 1 else ''}"
        for word, count in (("open", replica.transactions.open), ("hanging", replica.transactions.hanging))
        if count
    ]
    return [
        f"broker {printable(str(replica.broker))}",
        _offsets_held(replica),
        "high watermark " + ("unknown" if replica.high_watermark is None else str(replica.high_watermark)),
        "; ".join(word for word in rest if word),
    ]


def _offsets_held(replica: ReplicaSummary) -> str:
    """Which offsets its log has, as far as it was read."""
    start, end = replica.log_start_offset or 0, replica.log_end_offset
    if replica.read is ReadExtent.NONE:
        return "its log could not be read"
    if replica.read is ReadExtent.PART:
        reached = replica.read_end_offset if end is None else end
        held = span(start, reached, "offset") if reached is not None and reached > start else f"offset {start} on"
        return f"{held} read in part" + (", its end is not known" if end is None else "")
    assert end is not None
    return str(span(start, end, "offset")) if end > start else f"empty at offset {start}"


def kinds_and_places(findings: Iterable[Finding]) -> str:
    """`INDEX_MISSING on 12 partitions, TXN_OPEN on ledger-0`: findings in few words."""
    by_kind: dict[str, Counter[str]] = {}
    for finding in findings:
        by_kind.setdefault(finding.kind, Counter())[name(finding.place.topic, finding.place.partition)] += 1
    words = []
    for kind, places in sorted(by_kind.items()):
        named = [place for place in places if place]
        many = f"{len(named)} partitions" if len(named) > _NAMED_PARTITIONS else ", ".join(named)
        words.append(f"{kind} on {many}" if named else kind)
    return "; ".join(words)


def by_kind(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings worst first, those of one severity and kind together, of them the gravest first."""
    ordered = sorted(findings, key=lambda finding: (-finding.severity.rank, finding.kind, severity_order(finding)))
    return [list(group) for _, group in groupby(ordered, key=lambda finding: (finding.severity, finding.kind))]


def summary_lines(result: ScanResult) -> list[str]:
    """What was read and what came of it, in two or three lines."""
    totals = result.totals
    severities = by_severity(result.findings) or nothing_found(result)
    scope = f"{plural(totals.partitions, 'partition')}, {plural(totals.replicas, 'replica')} on {plural(totals.brokers, 'broker')}"
    records = f"{totals.records} records" + ("" if totals.records_decoded else " by batch headers (--deep decodes them)")
    counted = f"{plural(totals.segments, 'segment')}, {plural(totals.batches, 'batch')}, {records}"
    decoded, damaged, skipped = map(size, (totals.bytes_decoded, totals.bytes_damaged, totals.bytes_skipped))
    lines = [
        f"{result.verdict}: {severities} in {scope}",
        f"{size(totals.bytes_total)} read: {decoded} decoded, {damaged} damaged, {skipped} skipped; {counted}",
    ]
    if waiting := _waiting_readers(result.findings):
        lines.append(waiting)
    if not totals.partitions:
        lines[0] = lines[0].replace(f"clean: {nothing_found(result)}", "nothing was judged")
        if result.is_interrupted:
            return [f"{result.verdict}: nothing was judged"]
        lines.append("no partition was found in the log directories")
    return lines


def _waiting_readers(findings: Iterable[Finding]) -> str:
    """`readers of committed records wait in 2 partitions: ledger-0 (open transaction), …`; nothing where none wait."""
    reasons: dict[str, str] = {}
    for finding in findings:
        if reason := _why_readers_wait(finding.kind):
            reasons.setdefault(name(finding.place.topic, finding.place.partition), reason)
    if not reasons:
        return ""
    named = [f"{partition} ({reason})" for partition, reason in [*reasons.items()][:_NAMED_PARTITIONS]]
    more = [f"{len(reasons) - len(named)} more"] if len(reasons) > len(named) else []
    return f"readers of committed records wait in {plural(len(reasons), 'partition')}: {', '.join([*named, *more])}"


def _why_readers_wait(kind: str) -> str | None:
    """Why consumers wait for records of which there is a finding of this kind; None if they do not."""
    if kind in kinds_with(Trait.OPEN_TRANSACTION):
        return "hanging transaction" if kind == "TXN_HANGING" else "open transaction"
    return "high watermark held back" if kind == "READERS_HELD_BACK" else None


def live_lines(result: ScanResult, *, command: str = "scan") -> list[str]:
    """A line for a copy that may be of running brokers and was judged as one of stopped ones; of a scan none where that explains
    nothing."""
    grave = [
        finding
        for finding in result.findings
        if finding.kind in kinds_with(Trait.MAY_BE_OF_MOMENTS) and finding.severity.rank >= Severity.WARNING.rank
    ]
    told_of = {(finding.place.topic, finding.place.partition) for finding in grave}
    near = {
        str(replica.broker)
        for partition in result.partitions
        if partition.topic != CLUSTER_METADATA_TOPIC
        and (command != "scan" or (partition.topic, partition.partition) in told_of or (None, None) in told_of)
        for replica in partition.replicas
    }
    running = [
        str(broker_summary.broker)
        for broker_summary in result.brokers
        if not broker_summary.clean_shutdown and str(broker_summary.broker) in near
    ]
    if not running:
        return []
    named = first_few(map(printable, running), _NAMED_BROKERS)
    noun = "broker" if len(running) == 1 else "brokers"
    return [f"no clean-shutdown marker on {noun} {named}: {command} a copy of running brokers with --live"]


def by_severity(findings: Iterable[Finding]) -> str:
    """`1 critical, 11 info`, nothing for none."""
    return ", ".join(f"{count} {severity.value}" for severity, count in severity_counts(findings).items() if count)


def aligned(rows: Iterable[list[str]], width: int) -> list[str]:
    """Rows of `replica_words` as lines, in columns; the last column on a line of its own where one is wider than `width`."""
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    lines = [
        "   ".join(word.ljust(column_width) for word, column_width in zip(row, [*widths, 0], strict=True)).rstrip() for row in table
    ]
    if all(len(line) <= width for line in lines):
        return lines
    apart = [
        ["   ".join(word.ljust(column_width) for word, column_width in zip(row[:3], widths, strict=True)).rstrip(), row[3]]
        for row in table
    ]
    return [line for first, rest in apart for line in ([first, f"  {rest}"] if rest else [first])]


def nothing_found(result: ScanResult) -> str:
    """That nothing was found, and no more than that where some input could not be read."""
    return "nothing found where readable" if result.incomplete else "nothing found"


def incomplete_lines(result: ScanResult) -> list[str]:
    """A line for each input that could not be read, and what to do about them, where something can be done; and one for what tiered
    topics have in remote storage."""
    topics = sorted({partition.topic for partition in result.partitions if partition.is_tiered})
    more = len(topics) - _NAMED_TOPICS
    named = printable(listed(topics if more <= 0 else [*topics[:_NAMED_TOPICS], f"{more} more"]))
    remote = [f"not read: what tiered topics have in remote storage ({named})"] if topics else []
    return [*gap_lines(result.incomplete), *remote]


def gap_lines(gaps: Iterable[Incomplete]) -> list[str]:
    """A line for each of `gaps`, and what to do about them, where something can be done."""
    incompletes = [*gaps]
    rows = dict.fromkeys(f"incomplete: {printable(gap.path)}: {printable(gap.reason)}" for gap in incompletes)
    return [*rows, *gap_hints(incompletes)]


def gap_hints(gaps: Iterable[Incomplete]) -> list[str]:
    """What to do about links that lead out of what was given, and about a storage service that failed; nothing without either."""
    reasons = [gap.reason for gap in gaps]
    hints = ["hint: give what links lead to as paths, too"] if any(reason.endswith(OUTSIDE) for reason in reasons) else []
    return [*hints, f"hint: {TRY_AGAIN}"] if any(map(is_transient, reasons)) else hints


def command_lines(command: str, width: int) -> list[str]:
    r"""A command line for a shell in lines of at most `width`: each but the last ends in ` \`, and no option is parted from its
    value. A word that is longer stays whole."""
    words = _SHELL_WORD.findall(command)
    pieces: list[str] = []
    for word in words:
        if pieces and _TAKES_VALUE.fullmatch(pieces[-1]) and not word.startswith("--"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines = [" ".join(pieces[:2])]
    for number, piece in enumerate(pieces[2:], 3):
        ending = 0 if number == len(pieces) else len(_GOES_ON)
        if len(lines[-1]) + 1 + len(piece) + ending <= width:
            lines[-1] += f" {piece}"
        else:
            lines[-1] += _GOES_ON
            lines.append(f"    {piece}")
    return lines


def is_harmless(findings: Iterable[Finding]) -> bool:
    """Whether nothing is worse than info."""
    return all(finding.severity is Severity.INFO for finding in findings)


def finding_lines(findings: list[Finding]) -> Iterator[str]:
    """The first findings in a sentence each, and how many more there are, for commands that are not about findings."""
    yield from (f"{finding.severity.value}: {printable(message(finding))}" for finding in findings[:_TOLD_FINDINGS])
    if len(findings) > _TOLD_FINDINGS:
        yield f"and {len(findings) - _TOLD_FINDINGS} more; `{rerun_command('scan', findings[0].asked)}` tells all"
