"""The log directories of a salvage, one for each given one: their replicas and their small files.

By the controllers' log a replica belongs to the directory of its broker with the assigned id. A partition that this log does not
list, or any partition without such a log, belongs where its copies are, or where a high-watermark checkpoint names it.
"""

import base64
import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.inputs import Inputs, LogDir
from kafka_forensics.evidence.ledger import HIGH_WATERMARKS, assigned_directory_id, lost_directory_ids
from kafka_forensics.evidence.paths import is_without_log_dir
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication.small_files import BOOTSTRAP, META_PROPERTIES
from kafka_forensics.writers.files import write_meta_properties

METADATA_LOG: Final = (CLUSTER_METADATA_TOPIC, 0)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]|\A\.{1,2}\Z")


class TargetDir(Struct):
    """A log directory of the output that replaces a given one."""

    broker: int | str
    log_dir: str
    """The given log directory, as the user typed it."""
    directory: str
    """`broker-N/NAME`, below the output."""
    node_id: int | None = None
    directory_id: str | None = None
    is_empty: bool = False
    """Whether the given directory is an empty one for a replaced disk."""
    meta_properties: str | None = None
    """`copied` or `built`; None if no input determines its contents."""
    partitions: list[TopicPartition] = field(default_factory=list)
    """The salvaged partitions that belong there."""
    size_in_bytes: int = 0
    """Of the segments."""
    copies: frozenset[TopicPartition] = frozenset()
    """The partitions in the given directory."""
    expected: frozenset[TopicPartition] = frozenset()
    """These, and those that its high-watermark checkpoint names."""
    given: list[LogDir] = field(default_factory=list)
    """The given log directory, or its partition directories that were given separately."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Name → contents of the files that identify the node."""

    @property
    def node(self) -> int | str:
        """The id of its broker in the controllers' log, if known, else its name."""
        return self.broker if self.node_id is None else self.node_id

    @property
    def is_only_of_controller(self) -> bool:
        """Whether only the controllers' log is known to belong there."""
        return not self.is_empty and self.expected == {METADATA_LOG} and {*self.partitions} <= {METADATA_LOG}


def target_dirs(inputs: Inputs, controller: ControllerHistory | None, voters: Mapping[int, str | None]) -> list[TargetDir]:
    """A target without partitions for each given log directory; `voters` are the directory ids of the controllers' voters.

    Raises UsageError for an empty one of an unknown node; SourceError for a small file that cannot be read any more.
    """
    targets: dict[tuple[int | str, str], TargetDir] = {}
    for log_dir in inputs.log_dirs:
        path, (copies, expected) = _path(log_dir), _partitions(log_dir)
        target = targets.get((log_dir.broker, path))
        if target is None:
            if log_dir.is_empty and log_dir.node_id is None:
                text = f"the node of the empty log directory {log_dir.name} is unknown"
                raise UsageError(text, hint=f"give it with the node's id, as 3={log_dir.name}")
            broker = str(log_dir.broker if log_dir.node_id is None else log_dir.node_id)
            folder = _UNSAFE.sub("_", broker if broker.startswith("broker-") else f"broker-{broker}")
            base = f"{folder}/{_UNSAFE.sub('_', os.path.basename(os.path.abspath(path)) or '_')}"
            used = {target.directory for target in targets.values()}
            name = next(name for number in count(1) if (name := base if number == 1 else f"{base}-{number}") not in used)
            target = TargetDir(log_dir.broker, path, name, log_dir.node_id, is_empty=log_dir.is_empty)
            _copy_files(inputs, log_dir, target)
            targets[log_dir.broker, path] = target
        target.copies |= copies
        target.expected |= expected
        target.given.append(log_dir)
    _build_meta_properties(list(targets.values()), inputs, controller, voters)
    return list(targets.values())


def _path(log_dir: LogDir) -> str:
    """The path of a log directory; if a partition directory or a file was given separately, of the directory that contains it."""
    path = log_dir.name.rstrip("/") or "/"
    if is_without_log_dir(log_dir.found):
        logs = [segment.log for part in log_dir.found.partitions for segment in part.segments]
        for _ in range(2 if any(log is not None and not log.path for log in logs) else 1):
            path = os.path.dirname(path if "://" in path else os.path.abspath(path))
    return path


def _partitions(log_dir: LogDir) -> tuple[frozenset[TopicPartition], frozenset[TopicPartition]]:
    """The partitions in a log directory; and these with those in its high-watermark checkpoint."""
    parts = {(part.topic or "", part.partition or 0): part.suffix for part in log_dir.found.partitions if part.legal}
    marks = log_dir.checkpoints.get(HIGH_WATERMARKS)
    named = {key for key, offset in marks.offsets.items() if offset > 0} if marks is not None else set()
    copies = frozenset(key for key, suffix in parts.items() if suffix is None)
    return copies, copies | (named - parts.keys())


def _copy_files(inputs: Inputs, log_dir: LogDir, target: TargetDir) -> None:
    """Copy the small files that identify the node unchanged. Raises SourceError."""
    meta, entries = log_dir.meta, log_dir.found.entries
    is_good = meta is not None and not meta.damage and meta.node_id is not None
    target.directory_id = None if meta is None else meta.directory_id
    target.meta_properties = "copied" if is_good and META_PROPERTIES in entries else None
    for name in {BOOTSTRAP, *([META_PROPERTIES] if is_good else [])} & entries.keys():
        data = inputs.read(log_dir.source, entries[name], lambda file: file.read_at(0, file.size_in_bytes))
        if data is None:
            raise SourceError(entries[name].path, "it can no longer be read")
        target.files[name] = data


def _build_meta_properties(
    targets: Sequence[TargetDir], inputs: Inputs, controller: ControllerHistory | None, voters: Mapping[int, str | None]
) -> None:
    """Build `meta.properties` where no copy has one that a broker can read.

    The directory gets an id that the controllers have for a directory of the node and no other directory has, preferably one that
    they assign its partitions to: by this id they find their replicas. Otherwise the id is new, but a function of the input.
    """
    metas = [log_dir.meta for log_dir in inputs.log_dirs if log_dir.meta is not None]
    cluster_id = next((meta.cluster_id for meta in metas if meta.cluster_id is not None), None)
    version = max((meta.version for meta in metas if meta.version is not None), default=1)
    for target in targets:
        node = target.node
        if target.meta_properties is not None or not isinstance(node, int) or cluster_id is None:
            continue
        if target.directory_id is None and version:
            used = {other.directory_id for other in targets if other.node == node}
            lost = lost_directory_ids(controller, node, used)
            assigned = sorted((key not in target.expected, directory_id) for key, directory_id in lost.items())
            digest = hashlib.sha256(f"{cluster_id} {target.directory}".encode()).digest()[:16]
            new = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            candidates = (*(directory_id for _, directory_id in assigned), voters.get(node), new)
            target.directory_id = next(id_ for id_ in candidates if id_ is not None and id_ not in used)
        target.node_id, target.meta_properties = node, "built"
        target.files[META_PROPERTIES] = write_meta_properties(
            node_id=node, cluster_id=cluster_id, directory_id=target.directory_id, version=version
        )


def targets_of(key: TopicPartition, targets: Sequence[TargetDir], controller: ControllerHistory | None) -> list[TargetDir]:
    """The log directories that a partition belongs to, one of each broker."""
    control = None if controller is None else controller.partitions.get(key)
    if key == METADATA_LOG:  # the directory where a node has it; if the node has it nowhere, its new disk
        with_log = [target for target in targets if key in target.expected]
        disks = {target.node: target for target in reversed(targets) if target.is_empty}
        return with_log + [disk for node, disk in disks.items() if node not in {target.node for target in with_log}]
    if control is None or control.replica_assignment is None:
        by_node: dict[int | str, TargetDir] = {}
        for target in targets:
            if key in target.copies or (key in target.expected and target.node not in by_node):
                by_node[target.node] = target
        return list(by_node.values())
    chosen = []
    for node in control.replica_assignment:
        of_node = [target for target in targets if target.node == node and not target.is_only_of_controller]
        assigned = assigned_directory_id(control, node)
        if assigned is not None and all(target.directory_id is not None for target in of_node):
            chosen += [target for target in of_node if target.directory_id == assigned][:1]
        else:  # the id does not decide: the directory of the copy, or else the new disk
            chosen += sorted(
                of_node,
                key=lambda target: (
                    target.directory_id != assigned,
                    key not in target.copies,
                    key not in target.expected,
                    not target.is_empty,
                ),
            )[:1]
    return chosen


def put_partition(built: Path, places: Sequence[Path]) -> None:
    """Copy a partition's directory to all places but the last, and move it there. Raises OSError."""
    for place in places[:-1]:
        shutil.copytree(built, place)
    built.rename(places[-1])
