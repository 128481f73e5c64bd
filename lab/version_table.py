"""Makes the table of versions and states: what brokers lost, what a scan reports about the copy, and whether that is right.

`python -m lab.version_table [VERSION …]` (`make lab-versions`) runs every version and state, about an hour on two cores.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.collect import CollectOptions, collect
from kafka_forensics.scanning.engine import local
from lab.errors import LabError
from lab.tiered import TieredCluster, TieredHistory, states as tiered_states
from lab.version_healthy import at_rest, copied_live, killed_under_traffic, moving
from lab.version_histories import (
    Change,
    Histories,
    State,
    bit_flipped,
    first_segment_deleted,
    follower_cut,
    linked_directories,
    middle_segment_deleted,
    old_controllers_log,
    older_backup,
    one_topic_copied,
    unclean_election,
    wiped,
)
from lab.version_workload import Place, spans
from lab.versions import VERSIONS, Version, version_cluster

LIVE_COPIES: Final = 15
"""Copies of each version; seven versions give more than a hundred."""
KILLS: Final = 4
HISTORIES: Final[dict[str, Change]] = {
    "unclean election": unclean_election,
    "sole ISR member wiped": wiped,
    "older backup": older_backup,
    "old controller's log": old_controllers_log,
}
"""State → change of the healthy disks."""
DAMAGE: Final[dict[str, Change]] = {
    "first segment deleted": first_segment_deleted,
    "middle segment deleted": middle_segment_deleted,
    "follower cut": follower_cut,
    "bit flipped": bit_flipped,
}
"""State → change of one partition of the healthy disks."""
TIERED: Final = "4.3.1 tiered"
"""Name of the states of `lab/tiered.py` in the table."""
STARTED: Final = "sole ISR member wiped"
"""A state that is copied once more after the start."""
BAD: Final = (Severity.ERROR, Severity.CRITICAL)


def _suspects(finding: Finding) -> bool:
    """Whether a finding says that a lagging replica lacks committed records, as an older copy in its place would."""
    return finding.kind == "REPLICA_LAGS" and bool(finding.evidence.get("committed"))


def _finishes(finding: Finding) -> bool:
    """Whether a finding is an interrupted swap that the next start completes, after a kill between two renames; no false alarm."""
    return finding.kind == "INTERRUPTED_SWAP" and finding.severity is Severity.WARNING and bool(finding.evidence["files_renamed"])


@dataclass(frozen=True, slots=True)
class Cell:
    """A version in a state, and the scan of its copy."""

    version: str
    state: State
    result: ScanResult
    unlike: tuple[str, ...] = ()
    """Replicas that a scan of `State.same_as` finds and this one does not, or finds with another log."""
    by_bundles: tuple[str, ...] = ()
    """Differences between this scan and a scan of bundles of the same copies."""

    @property
    def above_info(self) -> list[Finding]:
        """Findings above `info`."""
        return [finding for finding in self.result.findings if finding.severity is not Severity.INFO]

    @property
    def wrong(self) -> list[str]:
        """Errors of the scan, judged by what clients and brokers report; empty if it is right."""
        bundles = [f"bundles: {self.by_bundles[0]}, {len(self.by_bundles)} findings in all"] if self.by_bundles else []
        return [*self._unread(), *self._false_alarms(), *self._missed(), *bundles]

    def _unread(self) -> Iterator[str]:
        if self.result.incomplete:
            yield f"{len(self.result.incomplete)} not read, first {self.result.incomplete[0].reason}"
        if self.unlike:
            yield f"{len(self.unlike)} replicas not read, first {self.unlike[0]}"

    def _false_alarms(self) -> Iterator[str]:
        """Findings about partitions that the history did not change."""
        for finding in self.above_info:
            place = _place(finding)
            if self.state.touched is not None and place not in self.state.touched and not _finishes(finding):
                yield f"false alarm: {finding_text(finding)}"

    def _missed(self) -> Iterator[str]:
        """Partitions that lost records or were damaged, without a finding of `error` or more."""
        if self.state.healed:
            return
        bad = {
            _place(finding)
            for finding in self.result.findings
            if finding.severity in BAD or (self.state.only_suspect and _suspects(finding))
        }
        if None in bad:
            return
        for place, offsets in sorted(self.state.lost.items()):
            if place not in bad:
                yield f"missed: {_place_text(place)} lost {spans(offsets)}"
        for place in sorted(self.state.touched or ()):
            if place not in self.state.lost and place not in {_place(finding) for finding in self.result.findings}:
                yield f"missed: nothing said of {_place_text(place)}"

    @property
    def truth(self) -> str:
        """What readers lost, as text."""
        offsets = sum(map(len, self.state.lost.values()))
        if not offsets:
            return "nothing lost" if self.state.started else "healthy" if not self.state.touched else "not started"
        return f"{offsets} records of {len(self.state.lost)} partitions lost"

    @property
    def verdict(self) -> str:
        """The most severe severity, and the kinds above `info`."""
        counts: dict[str, int] = {}
        for finding in self.above_info:
            counts[finding.kind] = counts.get(finding.kind, 0) + 1
        kinds = ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in sorted(counts.items()))
        worst = min((finding.severity for finding in self.result.findings), default=None, key=list(Severity).index)
        return f"{worst.value if worst else 'clean'}{': ' if kinds else ''}{kinds}"


def _place(finding: Finding) -> Place | None:
    topic, partition = finding.place.topic, finding.place.partition
    return None if topic is None or partition is None else (topic, partition)


def _place_text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def finding_text(finding: Finding) -> str:
    """A finding as one line."""
    place = finding.place
    offsets = f"[{place.offset_start}, {place.offset_end})"
    return f"{finding.severity.value} {finding.kind} {place.topic}-{place.partition} on {place.broker} {offsets}"


def judge(version: Version, state: State) -> Cell:
    """Scan the copies of a state, and bundles of them."""
    result = _scan(state.paths, live=state.live)
    same = _logs(_scan(state.same_as, live=state.live)) if state.same_as else set()
    return Cell(version.name, state, result, tuple(sorted(same - _logs(result))), tuple(_by_bundles(state, result)))


def _by_bundles(state: State, result: ScanResult) -> Iterator[str]:
    """Differences of findings between bundles, one per log directory, and directories; without KEY_PLACEMENT, which needs keys."""
    with tempfile.TemporaryDirectory(prefix="lab-bundles-") as folder:
        bundles = [Path(folder) / f"{number}.kfb" for number in range(len(state.paths))]
        for path, bundle in zip(state.paths, bundles, strict=True):
            with bundle.open("w+b") as file:
                collect([str(path)], CollectOptions(ScanOptions(live=state.live)), file)
        scanned = _scan(bundles, live=state.live)
    yield from (f"{gap.path}: {gap.reason}" for gap in scanned.incomplete)
    theirs, ours = (Counter(map(_comparable_text, compared.findings)) for compared in (scanned, result))
    yield from (f"more: {finding}" for finding in (theirs - ours).elements() if not finding.startswith(_NEEDS_KEYS))
    yield from (f"missing: {finding}" for finding in (ours - theirs).elements() if not finding.startswith(_NEEDS_KEYS))


_NEEDS_KEYS: Final = "KEY_PLACEMENT"


def _comparable_text(finding: Finding) -> str:
    """The parts of a finding that must be the same in directories and bundles."""
    place = finding.place
    where = f"{place.topic}-{place.partition} on {place.broker} [{place.offset_start}, {place.offset_end})"
    return f"{finding.kind} {finding.severity.value} {finding.confidence.value} {where} {finding.evidence.get('held_by')}"


def _scan(paths: Sequence[Path], *, live: bool) -> ScanResult:
    return local.scan([str(path) for path in paths], ScanOptions(jobs=1, live=live))


def _logs(result: ScanResult) -> set[str]:
    return {
        f"{partition.topic}-{partition.partition} on {replica.broker} up to {replica.log_end_offset}, {replica.segments} segments"
        for partition in result.partitions
        for replica in partition.replicas
    }


def cells(
    version: Version, root: Path, wanted: Callable[[str], bool] = lambda _: True, live: int = LIVE_COPIES, kills: int = KILLS
) -> Iterator[Cell]:
    """The selected states of a version, judged, with copies below `root`. Raises LabError."""
    with version_cluster(root / "nodes", version, log_dirs=2 if version.moves else 1) as cluster:
        for state in states(Histories(cluster, version, root / "copies"), wanted, live, kills):
            yield judge(version, state)


def tiered_cells(root: Path, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Cell]:
    """The selected states of a cluster with tiered topics, judged; in `isolated` the only leader with some records can still
    return."""
    with TieredCluster(root / "nodes") as cluster:
        for state in tiered_states(TieredHistory(cluster, root)):
            touched = None if state.name == "isolated" else frozenset(state.lost)
            gone = {place: list(records) for place, records in state.lost.items()}
            if wanted(state.name):
                yield judge(Version(TIERED), State(state.name, state.log_dirs, state.live, touched, gone, started=bool(gone)))


def states(histories: Histories, wanted: Callable[[str], bool], live: int, kills: int) -> Iterator[State]:
    """The states, each as soon as its disks are copied."""
    yield histories.make_base()
    if wanted("at rest"):
        yield from at_rest(histories)
    if wanted("killed under traffic"):
        yield from killed_under_traffic(histories, kills)
    if wanted("moving") and histories.version.moves:
        yield moving(histories)
    if live:
        yield from copied_live(histories, live)
    if wanted("one topic copied"):
        yield one_topic_copied(histories)
    if wanted("linked directories"):
        yield linked_directories(histories)
    if damage := {name: change for name, change in DAMAGE.items() if wanted(name)}:
        yield from histories.play_together(damage)
    for name, change in HISTORIES.items():
        if wanted(name) and not (change is old_controllers_log and histories.version.zookeeper):
            yield from histories.play(name, change, started=f"{name} and started" if name == STARTED else None)


def table(judged: Sequence[Cell]) -> str:
    """A Markdown row per version and state; live copies of a version are one row."""
    rows = ["| version | state | copies | brokers and clients | scan | right |", "|---|---|---|---|---|---|"]
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in judged:
        groups.setdefault((cell.version, cell.state.name), []).append(cell)
    for (version, state), members in groups.items():
        verdicts = " / ".join(dict.fromkeys(cell.verdict for cell in members))
        wrong = list(dict.fromkeys(reason for cell in members for reason in cell.wrong))
        right = "yes" if not wrong else "; ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
        rows.append(f"| {version} | {state} | {len(members)} | {members[0].truth} | {verdicts} | {right} |")
    return "\n".join(rows)


def summary(judged: Sequence[Cell]) -> str:
    """The number of copies of each kind, and of those judged wrongly."""
    healthy = [cell for cell in judged if not cell.state.live and cell.state.touched == frozenset()]
    live = [cell for cell in judged if cell.state.live]
    others = [cell for cell in judged if not cell.state.live and cell.state.touched != frozenset()]
    kinds = {"healthy copies": healthy, "live copies": live, "copies with a history": others}
    return "\n".join(
        f"{name}: {len(group)}, judged wrongly: {sum(bool(cell.wrong) for cell in group)}" for name, group in kinds.items()
    )


def main() -> int:
    """Play the versions on the command line (default: all), print the table, and return 1 if a scan is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join((*VERSIONS, TIERED))}; default: all")
    parser.add_argument("--live", type=int, default=LIVE_COPIES, help="copies of each version taken under traffic")
    parser.add_argument("--kills", type=int, default=KILLS, help="crashes of each version under traffic")
    parser.add_argument("--state", action="append", help="play only these states")
    parser.add_argument("--keep", type=Path, help="a new folder in which the copies stay")
    arguments = parser.parse_args()

    def wanted(state: str) -> bool:
        return not arguments.state or state in arguments.state

    judged: list[Cell] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="lab-versions-") as scratch:
        for name in arguments.versions or (*VERSIONS, TIERED):
            root = (arguments.keep or Path(scratch)) / name.replace(" ", "-")
            tiered = name == TIERED
            try:
                played = (
                    tiered_cells(root, wanted) if tiered else cells(VERSIONS[name], root, wanted, arguments.live, arguments.kills)
                )
                for cell in played:
                    judged.append(cell)
                    print(f"{name}: {cell.state.name}: {cell.verdict}: {cell.wrong or 'right'}", flush=True)
            except (LabError, KafkaException) as error:
                failed.append(f"{name} was not played to its end, after {judged[-1].state.name if judged else 'nothing'}: {error}")
                print(failed[-1], flush=True)
    print("\n".join(["", table(judged), "", summary(judged), *failed]))
    return int(bool(failed) or any(cell.wrong for cell in judged))


if __name__ == "__main__":
    raise SystemExit(main())
