"""Several snapshots of the same brokers in one job: each is scanned, then every replica is compared with itself over time."""

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from kafka_forensics.analysis.incidents import incidents_between
from kafka_forensics.analysis.kinds import on_premises
from kafka_forensics.errors import SourceError, UsageError, perhaps_meant
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, listed, require_match, without_secrets
from kafka_forensics.evidence.paths import StrangerError, split_name
from kafka_forensics.model.changes import Change, ChangeKind, SnapshotsResult
from kafka_forensics.model.findings import Confidence, Finding, Severity, TopicPartition
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.parsers.kernels.compiling import compile_as_needed
from kafka_forensics.questions.changes.partition import At, Disks, PartitionChanges, Words, disks_of, partition_changes
from kafka_forensics.scanning.engine.local import Progress, answers_in_order
from kafka_forensics.scanning.folding.fold_split import Merged
from kafka_forensics.scanning.judging.recovery_files import lone_leftovers
from kafka_forensics.scanning.judging.whole_scan import PartitionAnswer, Scan, digest_key, judged
from kafka_forensics.scanning.rereading.right_offsets import with_right_offsets
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.open import ARCHIVES, OTHER_CONTAINERS, located, open_source
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind

Given = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""A folder of snapshots; several snapshots, each a path that may be `NAME=PATH`; or the paths of each by its name."""

_PartitionOverTime = tuple[list[PartitionAnswer | None], PartitionChanges]
"""An answer for each snapshot, None where it has nothing, and the changes between them."""

_DIGITS: Final = re.compile("([0-9]+)")


@dataclass(slots=True)
class Snapshot:
    """One snapshot that is gathered, and its scan under way."""

    name: str
    inputs: Inputs
    witnesses: Witnesses
    running: Scan
    disks: Disks
    words: Words


@dataclass(slots=True)
class ComparedSnapshots:
    """The answer, and what is needed to read facts of each snapshot afterwards."""

    result: SnapshotsResult
    snapshots: list[Snapshot] = field(default_factory=list)


def snapshot_order(name: str) -> tuple[object, ...]:
    """Sort key of snapshots' names: as text, but numbers in them by their size, so that `day-9` stands before `day-10`."""
    parts = [part for part in _DIGITS.split(name) if part]
    return tuple((0, int(part), "") if _DIGITS.fullmatch(part) else (1, 0, part) for part in parts), name


def reached_apart(given: Given, options: ScanOptions) -> tuple[Given, ScanOptions]:
    """Snapshots and options, what URIs say of how to reach them taken out of their names (`options.without_secrets`)."""
    if isinstance(given, str):
        bare, options = without_secrets([given], options)
        return bare[0], options
    if not isinstance(given, Mapping):
        return without_secrets(given, options)
    paths_by_name: dict[str, str | Sequence[str]] = {}
    for name, paths in given.items():
        paths_by_name[name], options = without_secrets([paths] if isinstance(paths, str) else paths, options)
    return paths_by_name, options


def snapshot_paths(given: Given, options: ScanOptions, chosen: Sequence[str], notes: list[str]) -> dict[str, list[str]]:
    """The paths of each snapshot by its name, the oldest first; `chosen` are names of those wanted, in their order.

    URIs are those of `reached_apart`. To `notes` is added what in a folder looks like a snapshot and is not read as one. Raises
    UsageError for fewer than two, for one that is given twice, and for a name that is no snapshot's.
    """
    paths_by_name = named_snapshots(given, options, chosen, notes)
    require_several(paths_by_name, notes)
    return paths_by_name


def require_several(paths_by_name: Mapping[str, Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Raise UsageError for fewer than two snapshots; `notes` are those of `snapshot_paths`."""
    if len(paths_by_name) < 2:
        there = listed(paths_by_name) or "none"
        raise UsageError(
            f"there is nothing to compare: snapshots here: {there}",
            hint="; ".join(["give two snapshots, or a folder with two or more", *notes]),
        )


def named_snapshots(given: Given, options: ScanOptions, chosen: Sequence[str], notes: list[str]) -> dict[str, list[str]]:
    """The same, where one will do, or none."""
    if isinstance(given, Mapping):
        paths_by_name = {str(name): [paths] if isinstance(paths, str) else list(paths) for name, paths in given.items()}
    else:
        paths = [given] if isinstance(given, str) else list(given)
        paths_by_name = _in_folder(paths[0], options, notes) if len(paths) == 1 else _each_given(paths)
    for name, paths in paths_by_name.items():
        if not name or not paths:
            complaint = f"snapshot {name} has no paths" if name else "a snapshot has no name"
            raise UsageError(complaint, hint="give each snapshot a name and at least one path")
    if chosen:
        paths_by_name = _chosen(paths_by_name, chosen, notes)
        notes.clear()  # what was left out was not asked for
    _require_apart(paths_by_name)
    return paths_by_name


def _in_folder(root: str, options: ScanOptions, notes: list[str]) -> dict[str, list[str]]:
    """Every directory and archive in a folder as a snapshot; a link to one may be a second name of another, and is not."""
    matches = located(root, options.storage_options)
    if len(matches) > 1:
        return _each_given([path for path, _ in matches])
    ((path, reached),) = matches
    source = open_source(path, reached)
    if not _is_folder(source, path):
        raise UsageError(f"{path} is one snapshot and not a folder of them", hint="give the older and the newer: changes OLD NEW")
    snapshots: dict[str, list[str]] = {}
    entries = [entry for entry in source.list("") if not entry.name.startswith(".") and entry.name != "lost+found"]
    links = [entry.name for entry in entries if _is_link(entry)]
    for entry in entries:
        if (name := _snapshot_name(entry)) is not None:
            _add(snapshots, name, _below(root, entry.name), once=True)
    others = [entry.name for entry in entries if _is_container(entry) and _archive_name(entry.name) is None]
    if links:
        notes.append(f"links in {path} are not followed, give them as paths themselves: {listed(links)}")
    if others:
        notes.append(f"archives in {path} of kinds that are not read, unpack them first: {listed(others)}")
    return {name: snapshots[name] for name in sorted(snapshots, key=snapshot_order)}


def _is_folder(source: ByteSource, path: str) -> bool:
    return source.stat("").kind is EntryKind.DIRECTORY and (os.path.isdir(path) or "://" in path)


def _is_link(entry: Entry) -> bool:
    return entry.kind is EntryKind.SYMLINK or entry.link is not None


def _is_container(entry: Entry) -> bool:
    return not _is_link(entry) and entry.kind is EntryKind.FILE and entry.name.lower().endswith(OTHER_CONTAINERS)


def _snapshot_name(entry: Entry) -> str | None:
    """What a directory or an archive is called as a snapshot; None for all else."""
    if _is_link(entry) or entry.kind not in (EntryKind.DIRECTORY, EntryKind.FILE):
        return None
    return entry.name if entry.kind is EntryKind.DIRECTORY else _archive_name(entry.name)


def _below(root: str, name: str) -> str:
    return f"{root.rstrip('/')}/{name}" if root.strip("/") else f"/{name}"


def _archive_name(name: str) -> str | None:
    """The name of an archive without its ending; None for another file."""
    ending = next((archive for archive in sorted(ARCHIVES, key=len, reverse=True) if name.lower().endswith(archive)), None)
    return None if ending is None else name[: -len(ending)] or None


def _each_given(paths: Sequence[str]) -> dict[str, list[str]]:
    """Snapshots that were given one by one; a name that is given again adds a path to its snapshot."""
    paths_by_name: dict[str, list[str]] = {}
    for path in paths:
        name, rest = split_name(path)
        if name is not None:
            _add(paths_by_name, str(name), rest, once=False)
            continue
        folder = os.path.basename(path.rstrip("/"))
        _add(paths_by_name, _archive_name(folder) or folder or path, path, once=True)
    return paths_by_name


def _add(paths_by_name: dict[str, list[str]], name: str, path: str, *, once: bool) -> None:
    if once and name in paths_by_name:
        raise UsageError(
            f"two snapshots are called {name}: {paths_by_name[name][0]} and {path}", hint=f"name them, as in NAME={path}"
        )
    paths_by_name.setdefault(name, []).append(path)


def _chosen(paths_by_name: dict[str, list[str]], names: Sequence[str], notes: Sequence[str]) -> dict[str, list[str]]:
    for name in names:
        if name not in paths_by_name:
            meant = perhaps_meant(name, paths_by_name)
            raise UsageError(
                f"there is no snapshot {name}", hint="; ".join([f"{meant}snapshots here: {listed(paths_by_name)}", *notes])
            )
        if list(names).count(name) > 1:
            raise UsageError(f"snapshot {name} was chosen twice", hint="name each snapshot once, the oldest first")
    return {name: paths_by_name[name] for name in names}


def _require_apart(paths_by_name: dict[str, list[str]]) -> None:
    """Raise UsageError for a path in two snapshots."""
    holders: dict[str, str] = {}
    for name, paths in paths_by_name.items():
        for path in paths:
            bare = split_name(path)[1]
            place = os.path.realpath(bare) if os.path.lexists(bare) else bare.rstrip("/")
            if holders.setdefault(place, name) != name:
                both = f"{bare} is given as snapshot {holders[place]} and as snapshot {name}"
                raise UsageError(both, hint="give each path to one snapshot")


def _gathered(paths: Mapping[str, list[str]], options: ScanOptions) -> dict[str, Inputs]:
    """What each snapshot holds; files that are nothing of Kafka's are skipped with a note, as under a shell's `*`."""
    inputs_by_name: dict[str, Inputs] = {}
    strangers: list[str] = []
    refusal: UsageError | None = None
    for name, given in paths.items():
        try:
            inputs_by_name[name] = gather(given, options, elsewhere=True)
        except StrangerError as error:
            if any(os.path.isdir(split_name(path)[1]) or "://" in path for path in given):
                raise
            strangers += given
            refusal = error
    if refusal is not None:
        if len(inputs_by_name) < 2:
            raise refusal
        logging.getLogger(__name__).warning("skipped, as nothing of Kafka's is in them: %s", listed(strangers))
    return inputs_by_name


def gather_snapshots(paths: Mapping[str, list[str]], options: ScanOptions) -> dict[str, Inputs]:
    """What each snapshot holds. Raises UsageError for paths that make no sense, and if no neighbours have a broker in common."""
    snapshots = _gathered(paths, options)
    every = [log_dir for inputs in snapshots.values() for log_dir in inputs.log_dirs]
    if not any(inputs.incomplete for inputs in snapshots.values()):
        there = [
            (log_dir.broker, (directory.topic or "", directory.partition or 0))
            for log_dir in every
            for directory in log_dir.found.partitions
            if directory.legal
        ]
        require_match(there, dict.fromkeys(log_dir.broker for log_dir in every), options)
    _require_one_cluster(snapshots)
    _require_a_broker_in_both(snapshots)
    return snapshots


def _require_a_broker_in_both(snapshots: dict[str, Inputs]) -> None:
    brokers = {name: {log_dir.broker for log_dir in inputs.log_dirs} for name, inputs in snapshots.items()}
    if not all(brokers[older].isdisjoint(brokers[newer]) for older, newer in pairwise(snapshots)):
        return
    for gap in (gap for inputs in snapshots.values() for gap in inputs.incomplete):
        raise SourceError(gap.path, gap.reason)
    names = "; ".join(f"{name}: {listed(map(str, sorted(brokers[name], key=str)))}" for name in list(snapshots)[:4])
    hint = f"brokers are known by meta.properties, else by their folders' names ({names}); are these brokers of one snapshot?"
    raise UsageError("no broker is in two snapshots that follow each other, so there is nothing to compare", hint=hint)


def _require_one_cluster(inputs_by_name: Mapping[str, Inputs]) -> None:
    """Raise UsageError for neighbours that are known to be of different clusters."""
    clusters = {
        name: {
            log_dir.meta.cluster_id
            for log_dir in inputs.log_dirs
            if log_dir.meta is not None and log_dir.meta.cluster_id is not None
        }
        for name, inputs in inputs_by_name.items()
    }
    for older, newer in pairwise(inputs_by_name):
        if clusters[older] and clusters[newer] and clusters[older].isdisjoint(clusters[newer]):
            clusters_named = f"{listed(sorted(clusters[older]))} and {listed(sorted(clusters[newer]))}"
            raise UsageError(
                f"snapshots {older} and {newer} are of different clusters: {clusters_named}", hint="compare those of one cluster"
            )


def changes(given: Given, options: ScanOptions, progress: Progress | None = None, chosen: Sequence[str] = ()) -> ComparedSnapshots:
    """Scan every snapshot and compare each with the next, by the local engine. Raises UsageError for what makes no sense."""
    given, options = reached_apart(given, options)
    notes: list[str] = []
    answer = compared(gather_snapshots(snapshot_paths(given, options, chosen, notes), options), options, progress)
    answer.result.notes[:0] = notes
    return answer


def compared(gathered: Mapping[str, Inputs], options: ScanOptions, progress: Progress | None = None) -> ComparedSnapshots:
    """Scan every snapshot that was gathered and compare each with the next, by the local engine."""
    largest = max(sum(plan.bytes for plan in plans) for inputs in gathered.values() for plans in (inputs.replicas, inputs.internal))
    compile_as_needed(largest)
    snapshots = []
    for name, inputs in gathered.items():
        witnesses = read_witnesses(inputs)
        running = Scan("local", inputs, options, witnesses)
        running.findings += lone_leftovers(inputs)
        snapshots.append(Snapshot(name, inputs, witnesses, running, disks_of(name, inputs, options), Words(inputs)))
    key = digest_key()
    rows: list[Change] = []
    findings: list[Finding] = []
    incomplete: list[Incomplete] = []

    def answer(partition: TopicPartition, folded: Iterable[tuple[Scan, Merged]]) -> _PartitionOverTime:
        merged: dict[int, list[Merged]] = {}
        for running, replica in folded:
            merged.setdefault(id(running), []).append(replica)
        answers, times = list[PartitionAnswer | None](), []
        for snapshot in snapshots:
            mine = merged.get(id(snapshot.running), [])
            mine = with_right_offsets(mine, key, deep=snapshot.running.deep) if mine else []
            answers.append(judged(mine, key, options) if mine else None)
            summary = None if answers[-1] is None else answers[-1].result.summary
            times.append(At(snapshot.disks, snapshot.words.of(*partition), mine, summary, snapshot.inputs.evidence))
        return answers, partition_changes(times, key)

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
    """The whole answer, in its order; where snapshots seem to be in the wrong order, it says so and claims less."""
    order = {name: number for number, name in enumerate(scans)}
    known_changes.sort(key=lambda change: (*change.sort_key()[:3], order[change.from_snapshot], *change.sort_key()[3:]))
    notes = []
    for older, newer in pairwise(scans):
        backwards = _backwards([change for change in known_changes if change.from_snapshot == older])
        if backwards and newest_change_ms(inputs[newer]) < newest_change_ms(inputs[older]):
            notes.append(f"snapshot {newer} has shorter logs and older files than {older}: are the snapshots in the right order?")
            findings = [
                _doubted(finding, notes[-1]) if finding.evidence.get("from_snapshot") == older else finding for finding in findings
            ]
    findings = [replace(finding, asked=scans[finding.evidence["to_snapshot"]].asked) for finding in findings]
    findings.sort(key=lambda finding: (*finding.sort_key(), order[finding.evidence["from_snapshot"]]))
    return SnapshotsResult(
        scans,
        known_changes,
        findings,
        sorted(set(incomplete), key=lambda incomplete_file: (incomplete_file.path, incomplete_file.reason)),
        notes,
        incidents=incidents_between(findings),
    )


def _backwards(known_changes: list[Change]) -> bool:
    """Whether logs were cut and none went on."""
    kinds = {change.kind for change in known_changes}
    return ChangeKind.TRUNCATED in kinds and ChangeKind.APPENDED not in kinds


def newest_change_ms(inputs: Inputs) -> int:
    """The latest time at which any file of a snapshot was changed, as far as the copies kept it."""
    entries = [
        entry
        for log_dir in inputs.log_dirs
        for entry in (
            *log_dir.found.entries.values(),
            *(segment.log for part in log_dir.found.partitions for segment in part.segments),
        )
    ]
    return max((entry.mtime_ns // 1_000_000 for entry in entries if entry is not None), default=-1)


def _doubted(finding: Finding, note: str) -> Finding:
    severity = finding.severity if finding.severity is Severity.INFO else Severity.WARNING
    return replace(on_premises(finding, [note]), severity=severity, confidence=Confidence.SUSPECTED)
