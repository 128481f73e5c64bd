"""Several snapshots of the same brokers: each is scanned, then every replica is compared with itself over time."""

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.incidents import incidents_between
from kafka_forensics.analysis.kinds import with_premises
from kafka_forensics.errors import SourceError, UsageError, did_you_mean_prefix
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, listed, require_match, without_secrets
from kafka_forensics.evidence.paths import NoKafkaFilesError, split_name
from kafka_forensics.model.changes import Change, ChangeKind, SnapshotsResult
from kafka_forensics.model.findings import Confidence, Finding, Severity, TopicPartition
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.questions.changes.partition import (
    PartitionChanges,
    PartitionInSnapshot,
    SnapshotDirs,
    SnapshotTopics,
    partition_changes,
    snapshot_log_dirs,
)
from kafka_forensics.scanning.engine.local import Progress, answers_in_order
from kafka_forensics.scanning.folding.fold_split import FoldedReplica
from kafka_forensics.scanning.judging.recovery_files import leftovers_without_replica
from kafka_forensics.scanning.judging.whole_scan import PartitionAnswer, Scan, digest_key, judge_replicas
from kafka_forensics.scanning.rereading.right_offsets import with_right_offsets
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.open import ARCHIVES, OTHER_CONTAINERS, expand_patterns, open_source
from kafka_forensics.storage.source import EntryKind

SnapshotPaths = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""A folder of snapshots; several snapshots, each a path or `NAME=PATH`; or name → paths of each."""

_PartitionOverTime = tuple[list[PartitionAnswer | None], PartitionChanges]
"""The answer of each snapshot, None where it lacks the partition, and the changes between them."""

_DIGITS: Final = re.compile("([0-9]+)")


class Snapshot(Struct):
    """One gathered snapshot, and its running scan."""

    name: str
    inputs: Inputs
    witnesses: Witnesses
    running: Scan
    log_dirs: SnapshotDirs
    topics: SnapshotTopics


class ComparedSnapshots(Struct):
    """The answer, and the snapshots, whose facts can be read afterwards."""

    result: SnapshotsResult
    snapshots: list[Snapshot] = field(default_factory=list)


def _natural_sort_key(name: str) -> tuple[object, ...]:
    """Sort key that compares numbers in names by value: `day-9` before `day-10`."""
    parts = [part for part in _DIGITS.split(name) if part]
    return tuple((0, int(part), "") if _DIGITS.fullmatch(part) else (1, 0, part) for part in parts), name


def split_storage_options(snapshots: SnapshotPaths, options: ScanOptions) -> tuple[SnapshotPaths, ScanOptions]:
    """Snapshots without the storage options in their URIs, and the options with them (`options.without_secrets`)."""
    if isinstance(snapshots, str):
        bare, options = without_secrets([snapshots], options)
        return bare[0], options
    if not isinstance(snapshots, Mapping):
        return without_secrets(snapshots, options)
    paths_by_name: dict[str, str | Sequence[str]] = {}
    for name, paths in snapshots.items():
        paths_by_name[name], options = without_secrets([paths] if isinstance(paths, str) else paths, options)
    return paths_by_name, options


def snapshot_paths(snapshots: SnapshotPaths, options: ScanOptions, chosen: Sequence[str], notes: list[str]) -> dict[str, list[str]]:
    """Name → paths of each snapshot, the oldest first; `chosen` are the names of the requested ones in their order.

    URIs are those of `split_storage_options`. Adds to `notes` what in a folder resembles a snapshot and is not read.

    Raises UsageError for fewer than two snapshots, for a path in two of them, and for an unknown name.
    """
    paths_by_name = named_snapshots(snapshots, options, chosen, notes)
    require_two_snapshots(paths_by_name, notes)
    return paths_by_name


def require_two_snapshots(paths_by_name: Mapping[str, Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Raise UsageError for fewer than two snapshots; `notes` are those of `snapshot_paths`."""
    if len(paths_by_name) < 2:
        hint = "; ".join(["give two snapshots, or a folder with two or more", *notes])
        raise UsageError(f"there is nothing to compare: snapshots here: {listed(paths_by_name) or 'none'}", hint=hint)


def named_snapshots(
    snapshots: SnapshotPaths, options: ScanOptions, chosen: Sequence[str], notes: list[str]
) -> dict[str, list[str]]:
    """As `snapshot_paths`, for any number of snapshots."""
    if isinstance(snapshots, Mapping):
        paths_by_name = {str(name): [paths] if isinstance(paths, str) else list(paths) for name, paths in snapshots.items()}
    else:
        paths = [snapshots] if isinstance(snapshots, str) else list(snapshots)
        paths_by_name = _in_folder(paths[0], options, notes) if len(paths) == 1 else _one_by_one(paths)
    for name, paths in paths_by_name.items():
        if not name or not paths:
            complaint = f"snapshot {name} has no paths" if name else "a snapshot has no name"
            raise UsageError(complaint, hint="give each snapshot a name and at least one path")
    for name in chosen:
        if name not in paths_by_name:
            suggestion = did_you_mean_prefix(name, paths_by_name)
            hint = "; ".join([f"{suggestion}snapshots here: {listed(paths_by_name)}", *notes])
            raise UsageError(f"there is no snapshot {name}", hint=hint)
        if list(chosen).count(name) > 1:
            raise UsageError(f"snapshot {name} was chosen twice", hint="name each snapshot once, the oldest first")
    if chosen:
        paths_by_name = {name: paths_by_name[name] for name in chosen}
        notes.clear()  # they concern snapshots that were not requested
    snapshot_of: dict[str, str] = {}
    for name, paths in paths_by_name.items():
        for path in (split_name(path)[1] for path in paths):
            place = os.path.realpath(path) if os.path.lexists(path) else path.rstrip("/")
            if snapshot_of.setdefault(place, name) != name:
                both = f"{path} is given as snapshot {snapshot_of[place]} and as snapshot {name}"
                raise UsageError(both, hint="give each path to one snapshot")
    return paths_by_name


def _in_folder(root: str, options: ScanOptions, notes: list[str]) -> dict[str, list[str]]:
    """Every directory and archive in a folder as a snapshot; links are not followed, since one may name another snapshot again."""
    matches = expand_patterns(root, options.storage_options)
    if len(matches) > 1:
        return _one_by_one([path for path, _ in matches])
    ((path, reached),) = matches
    source = open_source(path, reached)
    if source.stat("").kind is not EntryKind.DIRECTORY or not (os.path.isdir(path) or "://" in path):
        raise UsageError(f"{path} is one snapshot, not a folder of snapshots", hint="give the older and the newer: changes OLD NEW")
    snapshots: dict[str, list[str]] = {}
    links, others = [], []
    for entry in source.list(""):
        if entry.name.startswith(".") or entry.name == "lost+found":
            continue
        name = entry.name if entry.kind is EntryKind.DIRECTORY else None
        name = _archive_name(entry.name) if entry.kind is EntryKind.FILE else name
        if entry.kind is EntryKind.SYMLINK or entry.link is not None:
            links.append(entry.name)
        elif name is not None:
            _add_new(snapshots, name, f"{root.rstrip('/')}/{entry.name}")
        elif entry.kind is EntryKind.FILE and entry.name.lower().endswith(OTHER_CONTAINERS):
            others.append(entry.name)
    if links:
        notes.append(f"links in {path} are not followed, give their targets as paths: {listed(links)}")
    if others:
        notes.append(f"archives in {path} of unsupported kinds, unpack them first: {listed(others)}")
    return {name: snapshots[name] for name in sorted(snapshots, key=_natural_sort_key)}


def _archive_name(name: str) -> str | None:
    """The name of an archive without its ending; None for another file."""
    ending = next((archive for archive in sorted(ARCHIVES, key=len, reverse=True) if name.lower().endswith(archive)), None)
    return None if ending is None else name[: -len(ending)] or None


def _one_by_one(paths: Sequence[str]) -> dict[str, list[str]]:
    """Snapshots from separate paths; a repeated `NAME=` adds a path to its snapshot."""
    paths_by_name: dict[str, list[str]] = {}
    for path in paths:
        name, rest = split_name(path)
        if name is not None:
            paths_by_name.setdefault(str(name), []).append(rest)
        else:
            folder = os.path.basename(path.rstrip("/"))
            _add_new(paths_by_name, _archive_name(folder) or folder or path, path)
    return paths_by_name


def _add_new(paths_by_name: dict[str, list[str]], name: str, path: str) -> None:
    if name in paths_by_name:
        both = f"two snapshots are called {name}: {paths_by_name[name][0]} and {path}"
        raise UsageError(both, hint=f"name them, as in NAME={path}")
    paths_by_name[name] = [path]


def gather_snapshots(paths: Mapping[str, list[str]], options: ScanOptions) -> dict[str, Inputs]:
    """Gather each snapshot. Skips files that are not Kafka's with a note, because a shell's `*` may have named them.

    Raises UsageError for invalid paths, for neighbours of different clusters, and if no neighbours have a common broker.
    """
    snapshots: dict[str, Inputs] = {}
    without_kafka_files: list[str] = []
    refusal: UsageError | None = None
    for name, paths_of_snapshot in paths.items():
        try:
            snapshots[name] = gather(paths_of_snapshot, options, elsewhere=True)
        except NoKafkaFilesError as error:
            if any(os.path.isdir(split_name(path)[1]) or "://" in path for path in paths_of_snapshot):
                raise
            without_kafka_files += paths_of_snapshot
            refusal = error
    if refusal is not None:
        if len(snapshots) < 2:
            raise refusal
        logging.getLogger(__name__).warning("skipped, without Kafka files: %s", listed(without_kafka_files))
    log_dirs = [log_dir for inputs in snapshots.values() for log_dir in inputs.log_dirs]
    if not any(inputs.incomplete for inputs in snapshots.values()):
        partitions = [
            (log_dir.broker, (directory.topic or "", directory.partition or 0))
            for log_dir in log_dirs
            for directory in log_dir.found.partitions
            if directory.legal
        ]
        require_match(partitions, dict.fromkeys(log_dir.broker for log_dir in log_dirs), options)
    _require_comparable(snapshots)
    return snapshots


def _require_comparable(snapshots: Mapping[str, Inputs]) -> None:
    """Raise UsageError for neighbours of different clusters, or if no neighbours have a common broker.

    Raises SourceError instead if brokers may be in what could not be read.
    """
    cluster_ids: dict[str, set[str]] = {}
    for name, inputs in snapshots.items():
        ids = (None if log_dir.meta is None else log_dir.meta.cluster_id for log_dir in inputs.log_dirs)
        cluster_ids[name] = {cluster_id for cluster_id in ids if cluster_id is not None}
    for older, newer in pairwise(snapshots):
        if cluster_ids[older] and cluster_ids[newer] and cluster_ids[older].isdisjoint(cluster_ids[newer]):
            clusters = f"{listed(sorted(cluster_ids[older]))} and {listed(sorted(cluster_ids[newer]))}"
            both = f"snapshots {older} and {newer} belong to different clusters: {clusters}"
            raise UsageError(both, hint="compare snapshots of one cluster")
    brokers = {name: {log_dir.broker for log_dir in inputs.log_dirs} for name, inputs in snapshots.items()}
    if not all(brokers[older].isdisjoint(brokers[newer]) for older, newer in pairwise(snapshots)):
        return
    for unread in (unread for inputs in snapshots.values() for unread in inputs.incomplete):
        raise SourceError(unread.path, unread.reason)
    names = "; ".join(f"{name}: {listed(map(str, sorted(brokers[name], key=str)))}" for name in list(snapshots)[:4])
    hint = (
        f"brokers are identified by meta.properties, else by the names of their folders ({names});"
        " do these brokers belong to one snapshot?"
    )
    raise UsageError("no broker is in two consecutive snapshots, so there is nothing to compare", hint=hint)


def changes(
    snapshots: SnapshotPaths, options: ScanOptions, progress: Progress | None = None, chosen: Sequence[str] = ()
) -> ComparedSnapshots:
    """Scan every snapshot and compare each with the next, on the local engine. Raises UsageError for invalid arguments."""
    snapshots, options = split_storage_options(snapshots, options)
    notes: list[str] = []
    answer = compared(gather_snapshots(snapshot_paths(snapshots, options, chosen, notes), options), options, progress)
    answer.result.notes[:0] = notes
    return answer


def compared(gathered: Mapping[str, Inputs], options: ScanOptions, progress: Progress | None = None) -> ComparedSnapshots:
    """Scan every gathered snapshot and compare each with the next, on the local engine."""
    largest = max(sum(plan.bytes for plan in plans) for inputs in gathered.values() for plans in (inputs.replicas, inputs.internal))
    compile_as_needed(largest)
    snapshots = []
    for name, inputs in gathered.items():
        witnesses = read_witnesses(inputs)
        running = Scan("local", inputs, options, witnesses, reads_stores=False)
        running.findings += leftovers_without_replica(inputs)
        snapshots.append(
            Snapshot(name, inputs, witnesses, running, snapshot_log_dirs(name, inputs, options), SnapshotTopics(inputs))
        )
    key = digest_key()
    rows: list[Change] = []
    findings: list[Finding] = []
    incomplete: list[Incomplete] = []

    def answer(partition: TopicPartition, folded: Iterable[tuple[Scan, FoldedReplica]]) -> _PartitionOverTime:
        merged: dict[int, list[FoldedReplica]] = {}
        for running, replica in folded:
            merged.setdefault(id(running), []).append(replica)
        answers, partition_in = list[PartitionAnswer | None](), []
        for snapshot in snapshots:
            replicas = merged.get(id(snapshot.running), [])
            replicas = with_right_offsets(replicas, key, deep=snapshot.running.deep) if replicas else []
            answers.append(judge_replicas(replicas, key, options) if replicas else None)
            summary = None if answers[-1] is None else answers[-1].result.summary
            topic, evidence = snapshot.topics.of(*partition), snapshot.inputs.evidence
            partition_in.append(PartitionInSnapshot(snapshot.log_dirs, topic, replicas, summary, evidence))
        return answers, partition_changes(partition_in, key)

    runs = [snapshot.running for snapshot in snapshots]
    for answers, between in answers_in_order(runs, key, options.jobs, answer, progress):
        for snapshot, of_snapshot in zip(snapshots, answers, strict=True):
            if of_snapshot is not None:
                snapshot.running.take(of_snapshot)
        rows += between.changes
        findings += between.findings
        incomplete += between.incomplete
    scans = {snapshot.name: snapshot.running.finish() for snapshot in snapshots}
    return ComparedSnapshots(finished(scans, rows, findings, incomplete, gathered), snapshots)


def finished(
    scans: dict[str, ScanResult],
    known_changes: list[Change],
    findings: list[Finding],
    incomplete: list[Incomplete],
    inputs: Mapping[str, Inputs],
) -> SnapshotsResult:
    """The whole answer, sorted. If snapshots seem to be in the wrong order, it notes that and lowers the confidence of findings."""
    order = {name: number for number, name in enumerate(scans)}
    known_changes.sort(key=lambda change: (*change.sort_key()[:3], order[change.from_snapshot], *change.sort_key()[3:]))
    notes = []
    for older, newer in pairwise(scans):
        kinds = {change.kind for change in known_changes if change.from_snapshot == older}
        is_backwards = ChangeKind.TRUNCATED in kinds and ChangeKind.APPENDED not in kinds
        if is_backwards and _newest_change_ms(inputs[newer]) < _newest_change_ms(inputs[older]):
            notes.append(f"snapshot {newer} has shorter logs and older files than {older}: are the snapshots in the right order?")
            findings = [
                _doubted(finding, notes[-1]) if finding.evidence.get("from_snapshot") == older else finding for finding in findings
            ]
    findings = [replace(finding, rerun_arguments=scans[finding.evidence["to_snapshot"]].rerun_arguments) for finding in findings]
    findings.sort(key=lambda finding: (*finding.sort_key(), order[finding.evidence["from_snapshot"]]))
    return SnapshotsResult(
        scans,
        known_changes,
        findings,
        sorted(set(incomplete), key=lambda incomplete_file: (incomplete_file.path, incomplete_file.reason)),
        notes,
        incidents=incidents_between(findings),
    )


def _newest_change_ms(inputs: Inputs) -> int:
    """The latest modification time of a snapshot's files, as far as the copies kept it; -1 if there are none."""
    entries = [
        entry
        for log_dir in inputs.log_dirs
        for entry in (
            *log_dir.found.entries.values(),
            *(segment.log for directory in log_dir.found.partitions for segment in directory.segments),
        )
    ]
    return max((entry.mtime_ns // 1_000_000 for entry in entries if entry is not None), default=-1)


def _doubted(finding: Finding, note: str) -> Finding:
    severity = finding.severity if finding.severity is Severity.INFO else Severity.WARNING
    return replace(with_premises(finding, [note]), severity=severity, confidence=Confidence.SUSPECTED)
