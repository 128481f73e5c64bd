"""Texts that several outputs share: the place of a finding, how replicas agree, summaries. All of it is safe to print."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, takewhile
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.outputs.rows import table_lines
from kafka_forensics.cli.streams import COMMAND_START
from kafka_forensics.errors import DENIED, TRY_AGAIN, is_transient
from kafka_forensics.evidence.options import listed
from kafka_forensics.export.json_document import severity_counts
from kafka_forensics.model.amounts import first_few, plural, size
from kafka_forensics.model.bundles import CollectRequest, collect_requests
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import Finding, Place, Severity, TopicPartition
from kafka_forensics.model.incidents import Cause, Incident, IncidentPartition
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.results import Incomplete, PartitionSummary, ReadExtent, ReplicaSummary, ScanResult
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.storage.local import OUTSIDE
from kafka_forensics.wording import incident_command, incident_loss, message, offset_range, rerun_command, severity_order

_Group = TypeVar("_Group")

SHOWN_ROWS: Final = 16
"""Rows of a table of partitions, a row for equal partitions of a topic."""
_FINDINGS_SHOWN: Final = 20
_NAMED_PARTITIONS: Final = 3
_NAMED_TOPICS: Final = 4
_NAMED_EPOCHS: Final = 3
_NAMED_BROKERS: Final = 6
_AGREEMENTS: Final = {
    "identical": "the replicas are identical",
    "prefix": "the replicas agree as far as they go",
    "conflict": "the replicas diverge",
    "missing": "some replicas lack records that others have",
    "compacted": "the replicas were compacted differently and hold the same values",
    "content": "the replicas differ in batches of one leader epoch",
    "not_compared": "not all replicas could be compared",
}
_AGREE_WHERE_READABLE: Final = "the replicas agree in what they still hold"


def headline(partition: PartitionSummary) -> str:
    """How the replicas agree and which offsets are known to be committed, a sentence without a full stop."""
    agreement = partition.agreement
    if partition.read is ReadExtent.NONE:
        return "nothing of its log could be read" if len(partition.replicas) == 1 else "nothing of any replica's log could be read"
    text = _AGREEMENTS[agreement.kind] if len(partition.replicas) > 1 else "one replica was given"
    if len(partition.replicas) > 1 and agreement.kind in ("identical", "compacted") and partition.verdict in {"error", "critical"}:
        text = _AGREE_WHERE_READABLE  # what damage or loss hides was not compared
    if agreement.common_end_offset is not None and agreement.kind == "conflict":
        text += f" at offset {agreement.common_end_offset}"
    if (high_watermark := partition.high_watermark_at_least) is not None:
        witness = f" ({unquoted(partition.high_watermark_witness)})" if partition.high_watermark_witness else ""
        text += f"; offsets below {high_watermark} were committed{witness}"
    return f"{text}; {partition.verdict} of what could be read" if partition.not_read else text


def name(topic: str | None, partition: int | None) -> str:
    """`audit-0`, `audit`, or empty."""
    return "-".join(unquoted(str(part)) for part in (topic, partition) if part is not None)


def place_words(place: Place, crowded: Iterable[str]) -> str:
    """`broker 2, audit-0/….log, bytes 0 to 60, offsets 300 to 369`; with the log directory for brokers in `crowded`."""
    parts = [] if place.broker is None else [_broker_words(place.broker)]
    path = [place.file] if place.file else []
    if place.log_dir and (not path or place.broker is None or str(place.broker) in crowded):
        path.insert(0, place.log_dir.rstrip("/"))
    if path:
        parts.append(unquoted("/".join(path)))
    parts += [offset_range(place.byte_start, place.byte_end, "byte"), offset_range(place.offset_start, place.offset_end, "offset")]
    return ", ".join(filter(None, parts))


def _broker_words(broker: int | str) -> str:
    return broker_name(broker) if broker == REMOTE else f"broker {broker_name(broker)}"


def broker_name(broker: int | str) -> str:
    """`2`, or `remote storage`."""
    return "remote storage" if broker == REMOTE else unquoted(str(broker))


def lost_words(incident: Incident, partitions: Iterable[IncidentPartition]) -> str:
    """Records or offsets lost by an incident in some of its partitions: `70`, `30 to 70`, `up to 70`, empty for none."""
    losses = [incident_loss(partition, incident)[:2] for partition in partitions]
    return _least_to_most(sum(least for least, _ in losses), sum(most for _, most in losses))


def _least_to_most(least: int, most: int) -> str:
    if not most:
        return ""
    return str(most) if least == most else f"{least} to {most}" if least else f"up to {most}"


def cost_words(incident: Incident) -> str:
    """`30 to 70 committed records`, or offsets where records are not known, at risk if no loss is proven; empty for none."""
    least, most, noun = incident_loss(incident, incident)
    at_risk = "" if least else " at risk"
    return f"{_least_to_most(least, most)} {noun}{'s' if most > 1 else ''}{at_risk}" if most else ""


def crowded_brokers(result: ScanResult) -> frozenset[str]:
    """Brokers with several log directories: places on them need the directory."""
    return frozenset(str(broker_summary.broker) for broker_summary in result.brokers if len(broker_summary.log_dirs) > 1)


def replica_words(replica: ReplicaSummary) -> list[str]:
    """A replica in four columns: broker, offsets, high watermark, the rest."""
    start, entries = replica.log_start_offset or 0, replica.leader_epochs or []
    latest = entries[-_NAMED_EPOCHS:]
    epochs = ", ".join(f"{epoch} from {first}" if first > start else str(epoch) for epoch, first in latest)
    earlier = "..., " if len(entries) > len(latest) else ""
    rest = [f"epoch{'s' if len(entries) > 1 else ''} {earlier}{epochs}" if epochs else ""]
    local_start = replica.local_log_start_offset or 0
    rest.append(f"in remote storage before {local_start}" if start < local_start else "")
    rest.append(f"{plural(replica.missing_offsets, 'offset')} missing" if replica.missing_offsets else "")
    by_state = {"open": replica.transactions.open, "hanging": replica.transactions.hanging}
    rest += [plural(count, f"{state} transaction") for state, count in by_state.items() if count]
    return [
        _broker_words(replica.broker),
        _offsets_held(replica),
        "high watermark " + ("unknown" if replica.high_watermark is None else str(replica.high_watermark)),
        "; ".join(filter(None, rest)),
    ]


def _offsets_held(replica: ReplicaSummary) -> str:
    """The offsets of its log, as far as it was read."""
    start, end = replica.log_start_offset or 0, replica.log_end_offset
    if replica.read is ReadExtent.NONE:
        return "its log could not be read"
    if replica.read is ReadExtent.PART:
        reached = replica.read_end_offset if end is None else end
        offsets = offset_range(start, reached, "offset") if reached is not None and reached > start else f"offset {start} on"
        return f"{offsets} read in part" + (", its end is not known" if end is None else "")
    assert end is not None
    return offset_range(start, end, "offset") if end > start else f"empty at offset {start}"


def extent_words(partitions: Collection[TopicPartition]) -> str:
    """`96 partitions of 16 topics`, or `8 partitions of topic audit`."""
    topics = {unquoted(topic) for topic, _ in partitions}
    of_topics = f"topic {min(topics)}" if len(topics) == 1 else plural(len(topics), "topic")
    return f"{plural(len(partitions), 'partition')} of {of_topics}"


def first_rows(groups: Sequence[_Group], limit: int | None = SHOWN_ROWS) -> tuple[Sequence[_Group], Sequence[_Group]]:
    """All groups, or where these are more than `limit` rows, those that leave a line for the number of the others; the others."""
    shown = len(groups) if limit is None or len(groups) <= limit else limit - 1
    return groups[:shown], groups[shown:]


class _Keyed(Protocol):
    """Something about one partition."""

    @property
    def key(self) -> TopicPartition: ...


_Partition = TypeVar("_Partition", bound=_Keyed)


class GroupedTable(Struct, Generic[_Partition], frozen=True):
    """A table with a row for each group of equal partitions; columns whose heads are in `right` are right-aligned."""

    heads: Sequence[str]
    right: Collection[str]
    cells: Callable[[Sequence[_Partition]], Sequence[str]]
    others: Callable[[Sequence[_Partition]], str] = lambda _: ""
    """What the line about all further groups adds to their number of partitions."""

    def lines(self, groups: Sequence[Sequence[_Partition]], limit: int | None, width: int | None) -> Iterator[str]:
        """At most `limit` lines below the heads, fitted to `width` columns; None is no limit."""
        shown, hidden = first_rows(groups, limit)
        yield from table_lines(self.heads, self.right, map(self.cells, shown), width)
        if others := list(chain.from_iterable(hidden)):
            yield f"{extent_words([partition.key for partition in others])} more{self.others(others)}\n"


def partition_ranges(partitions: Iterable[TopicPartition]) -> str:
    """`audit-0 to audit-121`, or `orders: 5 partitions` where they are not consecutive; all of one topic."""
    keys = sorted(partitions)
    first, last = keys[0], keys[-1]
    if last[1] - first[1] != len(keys) - 1:
        return f"{unquoted(first[0])}: {plural(len(keys), 'partition')}"
    return name(*first) + ("" if first == last else f" to {name(*last)}")


def by_kind(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings in groups of one severity and kind, the worst first, also within a group."""
    ordered = sorted(findings, key=lambda finding: (-finding.severity.rank, finding.kind, severity_order(finding)))
    return [list(group) for _, group in groupby(ordered, key=lambda finding: (finding.severity, finding.kind))]


def summary_lines(result: ScanResult, *, names_readers: bool = True) -> list[str]:
    """The verdict, what was read, and if `names_readers` where readers wait, in two or three lines."""
    totals = result.totals
    severities = by_severity(result.findings) or nothing_found(result)
    records = f"{totals.records} records" + ("" if totals.records_decoded else " by batch headers (--deep decodes them)")
    counted = f"{plural(totals.segments, 'segment')}, {plural(totals.batches, 'batch')}, {records}"
    decoded, damaged, skipped = map(size, (totals.bytes_decoded, totals.bytes_damaged, totals.bytes_skipped))
    lines = [
        f"{result.verdict}: {severities} in {scope_words(result)}",
        f"{size(totals.bytes_total)} read: {decoded} decoded, {damaged} damaged, {skipped} skipped; {counted}",
    ]
    if names_readers and (waiting := waiting_readers(result.findings)):
        lines.append(f"readers of committed records {waiting}")
    if result.remote.alone is None and not totals.partitions:
        lines[0] = lines[0].replace(f"clean: {nothing_found(result)}", "nothing was judged")
        if result.is_interrupted:
            return [f"{result.verdict}: nothing was judged"]
    return [*lines, *nothing_judged_lines(result)]


def nothing_judged_lines(result: ScanResult) -> list[str]:
    """Why a scan judged nothing, and what to give; nothing if it judged partitions or was interrupted."""
    if result.remote.alone is not None:
        return [_only_store_line(*result.remote.alone, result)]
    return [] if result.totals.partitions or result.is_interrupted else ["no partition was found in the log directories"]


def _only_store_line(partitions: int, segments: int, result: ScanResult) -> str:
    extent = "read" if result.remote.is_read else "listed"
    found = f"only the remote store was {extent} ({plural(partitions, 'partition')}, {plural(segments, 'segment')})"
    missing = "no replica was read" if result.brokers else "no log directories"
    return f"{missing}: {found}; give the brokers' log directories to know what is missing"


def scope_words(result: ScanResult) -> str:
    """`12 partitions, 36 replicas on 3 brokers`."""
    totals = result.totals
    return f"{plural(totals.partitions, 'partition')}, {plural(totals.replicas, 'replica')} on {plural(totals.brokers, 'broker')}"


def waiting_readers(findings: Iterable[Finding]) -> str:
    """`wait in 2 partitions: ledger-0 (open transaction), …`; empty where no reader of committed records waits."""
    reasons: dict[str, str] = {}
    for finding in findings:
        if reason := _why_readers_wait(finding.kind):
            reasons.setdefault(name(finding.place.topic, finding.place.partition), reason)
    if not reasons:
        return ""
    named = [f"{partition} ({reason})" for partition, reason in reasons.items()]
    if (more := len(named) - _NAMED_PARTITIONS) > 0:
        named[_NAMED_PARTITIONS:] = [f"{more} more"]
    return f"wait in {plural(len(reasons), 'partition')}: {', '.join(named)}"


def _why_readers_wait(kind: str) -> str | None:
    """Why consumers wait at a finding of this kind; None if they do not."""
    if kind in kinds_with(Trait.OPEN_TRANSACTION):
        return "hanging transaction" if kind == "TXN_HANGING" else "open transaction"
    return "high watermark held back" if kind == "READERS_HELD_BACK" else None


def live_lines(result: ScanResult, *, command: str = "scan") -> list[str]:
    """A hint to use --live where copies may be of running brokers; for `scan` only where that may explain a finding."""
    kinds = kinds_with(Trait.MAY_BE_OF_MOMENTS)
    findings = [finding for finding in result.findings if finding.kind in kinds and finding.severity is not Severity.INFO]
    affected = {(finding.place.topic, finding.place.partition) for finding in findings}
    brokers = {
        str(replica.broker)
        for partition in result.partitions
        if partition.topic != CLUSTER_METADATA_TOPIC
        and (command != "scan" or not affected.isdisjoint([(partition.topic, partition.partition), (None, None)]))
        for replica in partition.replicas
    }
    running = [str(summary.broker) for summary in result.brokers if not summary.clean_shutdown and str(summary.broker) in brokers]
    if not running:
        return []
    named = first_few(map(unquoted, running), _NAMED_BROKERS)
    noun, they = ("broker", "it") if len(running) == 1 else ("brokers", "they")
    copied = "was copied" if len(running) == 1 else "were copied"
    return [f"no clean-shutdown marker on {noun} {named}: if {they} ran while {they} {copied}, use --live"]


def by_severity(findings: Iterable[Finding]) -> str:
    """`1 critical, 11 info`, empty for none."""
    return ", ".join(f"{count} {severity.value}" for severity, count in severity_counts(findings).items() if count)


def aligned(rows: Iterable[list[str]], width: int) -> list[str]:
    """Rows of `replica_words` in columns; if a row is wider than `width`, the last column moves to lines below."""
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    columns = ["   ".join(cell.ljust(widths[column]) for column, cell in enumerate(row[:3])) for row in table]
    lines = [f"{first}   {row[3]}".rstrip() for first, row in zip(columns, table, strict=True)]
    if all(len(line) <= width for line in lines):
        return lines
    pairs = ([first.rstrip(), f"  {row[3]}"] if row[3] else [first.rstrip()] for first, row in zip(columns, table, strict=True))
    return list(chain.from_iterable(pairs))


def nothing_found(result: ScanResult) -> str:
    """`nothing found`, with a reservation where some input could not be read."""
    return "nothing found where readable" if result.incomplete else "nothing found"


def incomplete_lines(result: ScanResult) -> list[str]:
    """A line for each input that could not be read, hints, and a line about tiered topics whose remote storage was not read."""
    lines = gap_lines(result.incomplete)
    topics = {partition.topic for partition in result.partitions if partition.is_tiered} - result.remote.read
    objects = set[str]() if result.remote.is_read else topics & result.remote.listed
    if objects:
        lines.append(f"remote objects of {_named_topics(objects)} were listed, not read: scan --deep reads them")
    if others := topics - objects:
        lines.append(f"not read: what tiered topics have in remote storage ({_named_topics(others)})")
    return lines


def _named_topics(topics: Iterable[str]) -> str:
    named = sorted(topics)
    more = len(named) - _NAMED_TOPICS
    return unquoted(listed(named if more <= 0 else [*named[:_NAMED_TOPICS], f"{more} more"]))


def gap_lines(gaps: Iterable[Incomplete], lists: Mapping[str, str] | None = None) -> list[str]:
    """A line for each of `gaps`, one for several with one cause, and hints.

    What bundles lack has one command a bundle; `lists` are files that list what to collect, by bundle.
    """
    every = list(gaps)
    listed_gaps = [unread for unread in every if unread.needed is None]
    denied = [unread for unread in listed_gaps if unread.reason.startswith(DENIED)]
    several = len(denied) > 1
    others = [unread for unread in listed_gaps if not (several and unread.reason.startswith(DENIED))]
    rows = dict.fromkeys(f"incomplete: {unquoted(unread.path)}: {printable(unread.reason)}" for unread in others)
    requests = collect_requests(unread.needed for unread in every if unread.needed is not None)
    commands = [line for request in requests for line in _collect_lines(request, (lists or {}).get(request.bundle))]
    return [*([_denied_line(denied)] if several else []), *rows, *commands, *gap_hints(listed_gaps)]


def _collect_lines(request: CollectRequest, records_list: str | None) -> Iterator[str]:
    """What a bundle lacks, and the command that collects it, with the file that lists the ranges if there is one."""
    about = request.about
    where = "" if about.broker is None else f" on {_broker_words(about.broker)}"
    where += "" if records_list is None else f" with a copy of {unquoted(records_list)}"
    lacks = f"incomplete: {unquoted(request.bundle)}: it lacks records of {plural(request.partitions, 'partition')}"
    yield f"{lacks}; run{where}, and give the new bundle instead:"
    yield f"{COMMAND_START}{about.collect_command(request.records if records_list is None else [f'@{records_list}'])}"


def _denied_line(denied: Sequence[Incomplete]) -> str:
    parts = [unread.path.split("/")[:-1] for unread in denied]
    shared = "/".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False)))
    first = f"{unquoted(denied[0].path)}: {printable(denied[0].reason)}"
    below = f" below {unquoted(shared)}" if shared.strip("/") and not shared.endswith(":/") else ""
    return f"incomplete: {len(denied)} objects{below} cannot be read; the first, {first}"


def gap_hints(gaps: Iterable[Incomplete]) -> list[str]:
    """Hints for links that lead outside the given paths, and for storage services that failed."""
    reasons = [unread.reason for unread in gaps]
    hints = ["hint: give what links lead to as paths, too"] if any(reason.endswith(OUTSIDE) for reason in reasons) else []
    return [*hints, f"hint: {TRY_AGAIN}"] if any(map(is_transient, reasons)) else hints


def is_harmless(findings: Iterable[Finding]) -> bool:
    """Whether no finding is worse than info."""
    return all(finding.severity is Severity.INFO for finding in findings)


def finding_lines(findings: list[Finding]) -> Iterator[str]:
    """The first findings as sentences, and the number of others, for commands that are not about findings."""
    yield from (f"{finding.severity.value}: {printable(message(finding))}" for finding in findings[:_FINDINGS_SHOWN])
    if len(findings) > _FINDINGS_SHOWN:
        yield f"and {len(findings) - _FINDINGS_SHOWN} more; this shows all:"
        yield f"{COMMAND_START}{rerun_command('scan', findings[0].rerun_arguments)}"


def next_command(result: ScanResult) -> str | None:
    """The command that shows more of the worst incident that has one."""
    commands = ((incident, command) for incident in result.incidents if (command := incident_command(incident)) is not None)
    incident, command = next(commands, (None, None))
    if incident is None or command is None:
        return None
    state = state_options(incident.kinds) if incident.cause is Cause.HANGING_TRANSACTION else ()
    return rerun_command(command, result.rerun_arguments, *state)


def state_options(kinds: Container[str]) -> tuple[str, ...]:
    """Options of `transactions` that select what findings of these kinds are about: hanging transactions, else open ones."""
    states = ("TXN_HANGING", "hanging"), ("TXN_OPEN", "open")
    return next((("--state", state) for kind, state in states if kind in kinds), ())
