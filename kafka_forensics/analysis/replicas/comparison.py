"""Replicas of one partition compared: agreement, forks, losses, lag, and who has a good copy."""

from collections.abc import Collection, Mapping
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import Trait, finding, kinds_with
from kafka_forensics.analysis.replica import Replica, equal_digests, first_kept_offset, place_of
from kafka_forensics.analysis.replicas.damaged_forks import (
    another_history,
    doubted_epoch,
    epoch_starts,
    has_good_copy,
    with_whole_holders,
)
from kafka_forensics.analysis.replicas.diff import (
    BatchReader,
    Conflicts,
    Differences,
    are_control_batches,
    differences,
    is_compacted,
    is_complete,
    is_misplaced,
    was_moved,
)
from kafka_forensics.analysis.replicas.forks import (
    fork_findings,
    histories_differ,
    last_epoch,
    lineage,
    trailing_epoch_loss,
    unexplained_conflicts,
    without_reported,
)
from kafka_forensics.analysis.replicas.holders import held_offsets, with_held_ranges, with_ranges
from kafka_forensics.analysis.replicas.remote_segments import remote_witness
from kafka_forensics.analysis.replicas.single_replica import CUT_BACK
from kafka_forensics.model.batches import BatchColumn, has_right_crc
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.model.offset_ranges import Ranges, clipped, normalised, without
from kafka_forensics.model.results import Agreement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.analysis.kinds.evidence_classes import EpochFieldEvidence, LagsEvidence, ReencodedEvidence


class Comparison(Struct):
    """Result of a comparison: how the replicas agree, the findings, a lower bound of the high watermark with its witness, and where
    pairs of replicas (by their numbers) have different records."""

    agreement: Agreement
    findings: list[Finding] = field(default_factory=list)
    high_watermark: int | None = None
    witness: str | None = None
    conflicts: Conflicts = field(default_factory=dict)
    differing_pairs: list[tuple[int, int]] = field(default_factory=list)
    """Pairs that do not have the same batches where their logs overlap."""
    left_out: set[tuple[int | str, int, int]] = field(default_factory=set)
    """(broker, start, end) of gaps in logs of an older message format where another replica has control batches: these do not exist
    before format 2, and down-conversion leaves them out."""
    damaged: set[int] = field(default_factory=set)
    """Replicas, by their numbers, with damaged batches or wrong headers where others have other bytes."""
    different_content: set[tuple[int, int]] = field(default_factory=set)
    """Pairs with different headers or values of keys where either replica may be wrong."""
    lacks_keys: set[tuple[int, int]] = field(default_factory=set)
    """(replica that lacks a key's latest record, replica that has it)."""
    read_in_part: set[tuple[int, int]] = field(default_factory=set)
    """Pairs with more differing ranges than are compared."""


def compare(replicas: list[Replica], reader: BatchReader) -> Comparison:
    """Compare the replicas of one partition, all of one topic in one cluster."""
    high_watermark, witness = _high_watermark(replicas)
    result = Comparison(Agreement("identical"), [], high_watermark, witness)
    if len(replicas) < 2:
        return result
    result.agreement.common_end_offset = min(replica.log_end_offset for replica in replicas)
    pairs = {(i, j): differences(replicas[i], replicas[j], reader) for i, j in combinations(range(len(replicas)), 2)}
    result.left_out = _left_out(replicas, pairs, reader)
    result.differing_pairs = [pair for pair, differing in pairs.items() if differing.has_differences]
    conflicts = {
        pair: [difference for difference in differing if difference.kind == "content"] for pair, differing in pairs.items()
    }
    result.conflicts = forked = {pair: contents for pair, contents in conflicts.items() if contents}
    damaged = _damaged_batches(pairs, reader)
    result.findings += [_damaged_batch(replicas, damaged, forked, side, offset) for side, offset in sorted(damaged)]
    headers = _wrong_epochs(pairs)
    result.findings += [_wrong_epoch(replicas, wrong) for wrong in headers]
    result.damaged = {wrong.replica for wrong in headers}
    _add_content_differences(result, pairs, damaged)
    result.read_in_part = {pair for pair, differing in pairs.items() if differing.ranges_not_compared}
    result.findings += _reencoded(replicas, pairs)
    if forked:
        result.agreement = _take_forks(result, replicas, reader)
    elif (loss := trailing_epoch_loss(replicas)) is not None:
        result.findings.append(loss)
        result.agreement.kind = "prefix"
    else:
        result.agreement = _agreement(replicas, pairs, result)
    result.findings = [
        with_held_ranges(replicas, forked, with_whole_holders(replicas, found))
        if found.kind in kinds_with(Trait.NAMES_ONE_VERSION)
        else found
        for found in result.findings
    ]
    leading = {broker for finding in result.findings if finding.kind == "UNCLEAN_LOSS" for broker in finding.evidence["leaders"]}
    result.findings += [finding for finding in _lagging(replicas, forked) if finding.place.broker not in leading]
    if unread := max(differing.ranges_not_compared for differing in pairs.values()):
        result.findings = [finding.with_evidence(ranges_not_compared=unread) for finding in result.findings]
        if result.agreement.kind in ("identical", "prefix"):
            result.agreement = Agreement("not_compared")
    return result


def _take_forks(result: Comparison, replicas: list[Replica], reader: BatchReader) -> Agreement:
    """Add a finding for every fork and for every other loss; returns the conflict."""
    forked = result.conflicts
    forks, epochs, first = fork_findings(replicas, forked)
    forks = _with_record_offsets(forks, forked, reader)
    result.findings += forks
    if len(set(epochs.values())) == 1:
        first = forks[0].evidence.get("record_offset", first)
    rest = forked
    while rest := unexplained_conflicts(replicas, rest, forked):
        further, _, _ = fork_findings(replicas, rest, forked)
        result.findings += without_reported(_with_record_offsets(further, rest, reader), result.findings)
    while (loss := trailing_epoch_loss(replicas, forked, result.findings)) is not None:
        result.findings.append(loss)
    return Agreement("conflict", first, epochs)


def _left_out(
    replicas: list[Replica], pairs: Mapping[tuple[int, int], Differences], reader: BatchReader
) -> set[tuple[int | str, int, int]]:
    left_out = set()
    for (i, j), differing in pairs.items():
        for older, newer, side in ((i, j, 0), (j, i, 1)):
            if any(formats[side] < 2 <= formats[1 - side] for formats in differing.formats):
                left_out |= {
                    (replicas[older].broker, start, end)
                    for start, end in replicas[older].offset_sequence.gaps()
                    if are_control_batches(replicas[newer], reader, start, end)
                }
    return left_out


def _agreement(replicas: list[Replica], pairs: Mapping[tuple[int, int], Differences], result: Comparison) -> Agreement:
    """How replicas without different records agree; `result.agreement` if they do not differ at all."""
    identical = result.agreement
    if any(replica.state.unread for replica in replicas):
        return Agreement("not_compared")
    is_equal = all(equal_digests(replicas[0].state.digests, replica.state.digests) for replica in replicas[1:])
    if is_compacted(*replicas) and not is_equal and sum(replica.state.framing.records > 0 for replica in replicas) > 1:
        return replace(identical, kind="compacted")  # without records, nothing is cleaned or compared
    if any(difference.kind in ("damaged", "header") for differences in pairs.values() for difference in differences):
        first = min(differences[0].offset for differences in pairs.values() if differences)
        return replace(identical, kind="content", common_end_offset=first)
    if any(lacks_offsets(replicas, number, result) for number in range(len(replicas))):
        return replace(identical, kind="missing")
    if len({replica.log_end_offset for replica in replicas}) > 1:
        return replace(identical, kind="prefix")
    return identical


def _with_record_offsets(forks: list[Finding], conflicts: Conflicts, reader: BatchReader) -> list[Finding]:
    """`forks`; those within one leader epoch with `record_offset`, the first different record in the first batches that differ."""
    findings = []
    for fork in forks:
        offsets = [
            reader.first_different_offset(first.left, first.right) if first.formats is None else first.offset
            for first, *_ in conflicts.values()
            if fork.kind == "SAME_EPOCH_DIVERGENCE"
            and first.offset == fork.evidence["offset"]
            and first.epochs[0] == first.epochs[1]
        ]
        offset = min((offset for offset in offsets if offset is not None), default=None)
        findings.append(fork if offset is None else fork.with_evidence(record_offset=offset))
    return findings


def lacks_offsets(replicas: list[Replica], number: int, comparison: Comparison) -> bool:
    """Whether a replica, by its number, has a gap or offsets lost to damage where another of the same history has batches; not
    those of `Comparison.left_out`, and no gaps in a compacted partition."""
    sequence = replicas[number].offset_sequence
    gaps = [] if is_compacted(*replicas) else sequence.gaps()
    missing = [gap for gap in gaps if (replicas[number].broker, *gap) not in comparison.left_out]
    return any(
        replicas[other].covers(*offsets) and not histories_differ(replicas, comparison.conflicts, (number, other), offsets)
        for offsets in [*missing, *sequence.lost_to_damage.values()]
        for other in range(len(replicas))
        if other != number
    )


def _high_watermark(replicas: list[Replica]) -> tuple[int | None, str | None]:
    """The largest checkpointed high watermark, or the end of the last remote segment: a lower bound for the log of its witness."""
    best = max(replicas, key=lambda replica: replica.context.high_watermark or 0)
    checkpointed = best.context.high_watermark or 0
    remote = remote_witness(replicas)
    if remote is not None and remote[0] > checkpointed:
        return remote
    return (checkpointed, f"replication-offset-checkpoint of broker {best.broker}") if checkpointed else (None, None)


def _damaged_batches(pairs: dict[tuple[int, int], Differences], reader: BatchReader) -> "dict[tuple[int, int], _DamagedBatch]":
    """(replica, base offset) → batch that is damaged on one replica, or has no decodable records there though its CRC is right."""
    bad: dict[tuple[int, int], _DamagedBatch] = {}
    for (i, j), differing in pairs.items():
        for difference in differing:
            if difference.kind != "damaged":
                continue
            good = has_right_crc(difference.left.row) and has_right_crc(difference.right.row)
            sides = ((i, j, difference.left, difference.right), (j, i, difference.right, difference.left))
            for side, other, damaged, against in sides:
                if not has_right_crc(damaged.row) or (good and reader.undecodable(damaged)):
                    batch = _DamagedBatch(damaged.row, "undecodable" if good else "rot")
                    batch = bad.setdefault((side, int(damaged.row[BatchColumn.BASE_OFFSET])), batch)
                    batch.against.setdefault(other, []).append(against.row)
    return bad


class _DamagedBatch(Struct):
    """A damaged batch, or one without decodable records though its CRC is right, with the other replicas' batches in its place."""

    row: "NDArray[np.int64]"
    kind: str
    against: dict[int, list["NDArray[np.int64]"]] = field(default_factory=dict)


def _damaged_batch(
    replicas: list[Replica], bad: Mapping[tuple[int, int], _DamagedBatch], forked: Conflicts, side: int, offset: int
) -> Finding:
    """The finding about a damaged batch, with the majority's view."""
    batch = bad[side, offset]
    row, end = batch.row, int(batch.row[BatchColumn.LAST_OFFSET]) + 1
    others = [k for k in sorted(batch.against) if (k, offset) not in bad]
    same = [k for k in others if not histories_differ(replicas, forked, (side, k), (offset, end))]
    premises = doubted_epoch(row, [whole for k in same for whole in batch.against[k]])
    evidence = {
        "kind": batch.kind,
        "epoch": int(row[BatchColumn.PARTITION_LEADER_EPOCH]),
        "minority": [replicas[side].broker],
        "majority": [replicas[k].broker for k in same],
        "held_by": [replicas[k].broker for k in same if has_good_copy(replicas[k], row, batch.against[k])],
    } | ({"premises": premises, "epoch_in_doubt": True} if premises else {})
    place = _batch_place(replicas[side], row, offset)
    return finding("REPLICA_DIFFERS", place, evidence, confidence=Confidence.INFERRED if premises else None)


def _batch_place(replica: Replica, row: "NDArray[np.int64]", offset: int) -> Place:
    position, size, end = int(row[BatchColumn.POSITION]), int(row[BatchColumn.SIZE_IN_BYTES]), int(row[BatchColumn.LAST_OFFSET]) + 1
    return replica.context.log_place(int(row[-1]), position, size, offset, end)


class _WrongEpoch(NamedTuple):
    """A batch with equal bytes under the CRC but another epoch in the header than most replicas have, `holders`."""

    replica: int
    row: "NDArray[np.int64]"
    offset: int
    expected_epoch: int
    holders: list[int]


def _wrong_epochs(pairs: dict[tuple[int, int], Differences]) -> list[_WrongEpoch]:
    """All such batches by offset, epoch and replica."""
    votes: dict[int, dict[int, NDArray[np.int64]]] = {}
    for (i, j), differing in pairs.items():
        for difference in differing:
            if difference.kind == "header" and difference.epochs[0] != difference.epochs[1]:
                rows = votes.setdefault(difference.offset, {})
                rows[i], rows[j] = difference.left.row, difference.right.row
    wrong = []
    for offset, rows in sorted(votes.items()):
        epochs: dict[int, list[int]] = {}
        for k, row in rows.items():
            epochs.setdefault(int(row[BatchColumn.PARTITION_LEADER_EPOCH]), []).append(k)
        majority = max(epochs, key=lambda epoch: (len(epochs[epoch]), -epoch))
        for epoch, holders in sorted(epochs.items()):
            if epoch != majority:
                wrong += [_WrongEpoch(k, rows[k], offset, majority, sorted(epochs[majority])) for k in holders]
    return wrong


def _wrong_epoch(replicas: list[Replica], wrong: _WrongEpoch) -> Finding:
    evidence: EpochFieldEvidence = {
        "epoch": int(wrong.row[BatchColumn.PARTITION_LEADER_EPOCH]),
        "expected_epoch": wrong.expected_epoch,
        "witnesses": ["other replicas"],
        "held_by": [replicas[number].broker for number in wrong.holders],
    }
    return finding("EPOCH_FIELD_MISMATCH", _batch_place(replicas[wrong.replica], wrong.row, wrong.offset), evidence)


def _add_content_differences(
    result: Comparison, pairs: dict[tuple[int, int], Differences], damaged: Mapping[tuple[int, int], _DamagedBatch]
) -> None:
    """Add to `result` the replicas with damaged batches or wrong epochs, base offsets and counts in headers, and the pairs with
    other such differences."""
    result.damaged |= {side for side, _ in damaged}
    for pair, differing in pairs.items():
        for difference in differing:
            sides = list(zip(pair, (difference.left, difference.right), strict=True))
            is_explained = any((number, int(batch.row[BatchColumn.BASE_OFFSET])) in damaged for number, batch in sides)
            same_epoch = difference.epochs[0] == difference.epochs[1]
            if (difference.kind == "damaged" and not is_explained) or (difference.kind == "header" and same_epoch):
                wrong = {number for number, batch in sides if is_misplaced(batch) or was_moved(batch) or not is_complete(batch)}
                result.damaged |= wrong
                result.different_content |= set() if wrong else {pair}


def _reencoded(replicas: list[Replica], pairs: dict[tuple[int, int], Differences]) -> list[Finding]:
    """Batches with different bytes and equal records: harmless, a finding for each pair. A warning if a log in an older message
    format lacks more than timestamps of the other's records."""
    findings = []
    for (i, j), differing in sorted(pairs.items()):
        same, batches = [difference for difference in differing if difference.kind == "reencoded"], differing.counts["reencoded"]
        fork_offset = next((difference.offset for difference in differing if difference.kind == "content"), None)
        if differing.formats and fork_offset is not None:
            same = [difference for difference in same if difference.offset < fork_offset]
            batches = len(same)
        if same:
            place = place_of(replicas, same[0].offset, same[-1].end_offset)
            evidence: ReencodedEvidence = {"brokers": [replicas[i].broker, replicas[j].broker], "batches": batches}
            severity = _add_formats(evidence, differing)
            findings.append(finding("BATCHES_REENCODED", place, evidence, severity=severity))
    return findings


def _add_formats(evidence: "ReencodedEvidence", differing: Differences) -> Severity | None:
    """Add the message formats of two brokers' batches if they are two, and what the older one cannot hold; returns a severity if a
    consumer can miss it."""
    if not differing.formats:
        return None
    brokers = evidence["brokers"]
    evidence["message_formats"] = [sorted(set(formats)) for formats in zip(*differing.formats, strict=True)]
    if any("timestamps" in not_held for not_held in differing.not_held):
        evidence["not_compared"] = ["timestamps"]
    headers, transactions = (
        [broker for broker, not_held in zip(brokers, differing.not_held, strict=True) if what in not_held]
        for what in ("headers", "transactions")
    )
    if not headers and not transactions:
        return None
    evidence["without_headers"], evidence["without_transactions"] = headers, transactions
    evidence["held_by"] = [broker for broker in brokers if broker not in (*headers, *transactions)]
    if not differing.ranges_not_compared:
        evidence["lacking"] = [
            {"offset_start": start, "offset_end": end, "brokers": [broker]}
            for broker, ranges in zip(brokers, differing.lacking, strict=True)
            for start, end in ranges
        ]
    return Severity.WARNING


def _lagging(replicas: list[Replica], forked: Conflicts) -> list[Finding]:
    """Replicas that are a strict prefix of another and fork from none; longer copies that fork from a third are listed
    separately."""
    findings = []
    longest = max(replica.log_end_offset for replica in replicas)
    in_conflict = {index for pair in forked for index in pair}
    for index, replica in enumerate(replicas):
        if replica.log_end_offset >= longest or not replica.end_is_known or index in in_conflict:
            continue
        longer = [k for k, other in enumerate(replicas) if other.log_end_offset > replica.log_end_offset]
        start = first_kept_offset(replica.log_end_offset, [replicas[k] for k in longer])
        place = replica.context.place(offset_start=min(start, longest), offset_end=longest)
        evidence: LagsEvidence = {"behind": longest - replica.log_end_offset, "leader_end": longest}
        evidence["held_by"] = [replicas[k].broker for k in longer if k not in in_conflict]
        if in_conflict.intersection(longer):
            evidence["in_conflict"] = [replicas[k].broker for k in longer if k in in_conflict]
        findings.append(finding("REPLICA_LAGS", place, evidence))
    return findings


def with_holders(
    replicas: list[Replica], findings: list[Finding], comparison: Comparison, *, all_read: bool = True
) -> list[Finding]:
    """Add to findings of damage and gaps which brokers have the offsets whole, and raise gaps below the high watermark to critical.

    `comparison` is that of the replicas, whose findings are among `findings`. Gaps below the high watermark that no replica fills
    are `COMMITTED_LOST_EVERYWHERE`, unless `all_read` is False: a log was not read completely.
    """
    judged = []
    lost: set[tuple[int, int]] = set()
    unreadable = {
        (wrong_batch.place.broker, *_offsets(wrong_batch))
        for wrong_batch in findings
        if wrong_batch.kind in kinds_with(Trait.CHECKSUM_MAY_BE_RIGHT)
    }
    for found in findings:
        gap = _without_deleted(replicas, found) if found.kind == "HW_BEYOND_LEO" else _cut_back(replicas, found)
        start, end = gap.place.offset_start, gap.place.offset_end
        if gap.kind not in _HELD or start is None or end is None:
            judged.append(gap)
            continue
        if gap.kind == "OFFSET_GAP" and (gap.place.broker, start, end) in comparison.left_out:
            judged.append(replace(gap.with_evidence(control_batches_left_out=True), severity=Severity.INFO))
            continue
        covering, holders = _holders(replicas, gap, comparison.conflicts, unreadable)
        watermark = comparison.high_watermark
        below = gap.kind in _MISSING and watermark is not None and start < watermark
        reported = gap.with_evidence(held_by=holders)
        if gap.kind in kinds_with(Trait.CONTENT_IS_LOST) and not holders:
            reported = with_ranges(reported, _held_in_part(replicas, gap, comparison.conflicts))
        if gap.kind in _MISSING and watermark is not None:
            reported = reported.with_evidence(high_watermark=watermark, witness=comparison.witness, below_high_watermark=below)
        critical = below and gap.kind in kinds_with(Trait.CRITICAL_BELOW_HW)
        judged.append(replace(reported, severity=Severity.CRITICAL) if critical else reported)
        if below and gap.kind == "OFFSET_GAP" and not covering and len(replicas) > 1 and all_read:
            lost.add((start, end))
    for start, end in _lost_everywhere_ranges(replicas, lost, comparison.high_watermark or 0):
        place = place_of(replicas, start, end)
        witnessed = {"high_watermark": comparison.high_watermark, "witness": comparison.witness}
        judged.append(finding("COMMITTED_LOST_EVERYWHERE", place, {"missing": end - start, **witnessed, "held_by": []}))
    return judged


def _holders(
    replicas: list[Replica], gap: Finding, conflicts: Conflicts, unreadable: Collection[tuple[int | str | None, int, int]]
) -> tuple[list[int], list[int | str]]:
    """Numbers of the other replicas whose logs cover a finding's offsets, and the brokers that have them whole and of the same
    history; `unreadable`: (broker, first offset, end) of unreadable batches."""
    low, high = _offsets(gap)
    covering = [n for n, replica in enumerate(replicas) if replica.broker != gap.place.broker and replica.covers(low, high)]
    holders = [replicas[number].broker for number in covering if _is_same_history(replicas, gap, conflicts, number)]
    if gap.kind in kinds_with(Trait.CHECKSUM_MAY_BE_RIGHT) or gap.kind == "BATCH_CRC_MISMATCH":
        bad = {broker for broker, first, end_of_bad in unreadable if first < high and low < end_of_bad}
        holders = [broker for broker in holders if broker not in bad]
    return covering, holders


def _is_same_history(
    replicas: list[Replica], gap: Finding, conflicts: Conflicts, number: int, offsets: tuple[int, int] | None = None
) -> bool:
    """Whether a replica, by its number, has the history of the finding's broker at the finding's offsets, or at `offsets`."""
    start, end = offsets or _offsets(gap)
    for index, replica in enumerate(replicas):
        if replica.broker != gap.place.broker:
            continue
        if histories_differ(replicas, conflicts, (index, number), (start, end)):
            return False
        if gap.kind in kinds_with(Trait.CONTENT_IS_LOST) and another_history(replica, replicas[number], start, end):
            return False
    return True


def _held_in_part(replicas: list[Replica], gap: Finding, conflicts: Conflicts) -> list[tuple[int | str, Ranges]]:
    """The part of a finding's missing offsets that each other broker has of the same history, which may end where a leader epoch
    begins."""
    low, high = _offsets(gap)
    starts = {offset for replica in replicas for offset in epoch_starts(replica)}
    edges = sorted({low, high, *(offset for offset in starts if low < offset < high)})
    by_broker: list[tuple[int | str, Ranges]] = []
    for number, replica in enumerate(replicas):
        if replica.broker == gap.place.broker:
            continue
        same = [span for span in pairwise(edges) if _is_same_history(replicas, gap, conflicts, number, span)]
        by_broker.append((replica.broker, normalised(part for span in same for part in held_offsets(replica, *span))))
    return by_broker


def _cut_back(replicas: list[Replica], gap: Finding) -> Finding:
    """Entries of an open index beyond the end of its log, as harmless if another copy proves that the log was truncated there: a
    leader epoch that this log does not know begins at its end or before."""
    if gap.kind != "INDEX_MISMATCH" or not gap.evidence.get("after_log_end"):
        return gap
    replica = next(other for other in replicas if other.context.log_dir == gap.place.log_dir and other.broker == gap.place.broker)
    end = replica.log_end_offset
    explained = any(
        entry.leader_epoch > last_epoch(replica) and entry.start_offset <= end
        for other in replicas
        for entry in lineage(other)
        if other is not replica
    )
    if not explained or (replica.context.high_watermark or 0) > end:
        return gap
    return replace(gap.with_evidence(harmless_if=CUT_BACK), severity=Severity.INFO)


def _without_deleted(replicas: list[Replica], lost: Finding) -> Finding:
    """A lost end without the offsets below the log start of all others that extend beyond it: these were deleted since. Unchanged
    if no other has any of it."""
    start, end = _offsets(lost)
    others = [replica for replica in replicas if replica.broker != lost.place.broker and start < replica.log_end_offset]
    first = first_kept_offset(start, others) if others else start
    return replace(lost, place=replace(lost.place, offset_start=first)) if first < end else lost


def _offsets(subject: Finding) -> tuple[int, int]:
    """Offsets [start, end) of a finding; of a batch whose header claims more offsets than it has records, those of its records."""
    start, end = subject.place.offset_start or 0, subject.place.offset_end or 0
    count = subject.evidence.get("records_count")
    if subject.kind == "BATCH_RANGE_INCONSISTENT" and isinstance(count, int) and count > 0:
        end = min(end, start + count)
    return start, end


def _lost_everywhere_ranges(replicas: list[Replica], gaps: set[tuple[int, int]], high_watermark: int) -> Ranges:
    """The part of these gaps below the high watermark that no log has, ascending.

    Offsets below some replica's log start were deleted there; their absence here is not a loss.
    """
    if not gaps:
        return ()
    start = max(replica.local_log_start_offset for replica in replicas)
    good = normalised(span for replica in replicas for span in replica.good_ranges)
    return without(clipped(normalised(gaps), start, high_watermark), good)


_MISSING = kinds_with(Trait.CRITICAL_BELOW_HW, Trait.LACKS_OFFSETS)
"""Kinds that get the partition's high watermark and its witness; `HW_BEYOND_LEO` is about its replica's own."""
_HELD = kinds_with(
    Trait.CRITICAL_BELOW_HW,
    Trait.LACKS_OFFSETS,
    Trait.CONTENT_IS_LOST,
    Trait.CHECKSUM_MAY_BE_RIGHT,
    Trait.OUT_OF_ORDER,
    Trait.REPAIRED_BY_COPY,
)
