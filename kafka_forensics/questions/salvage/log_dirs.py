"""The log directories of a salvage: one for each that was given, with the replicas that belong there and their small files.

By the controllers' log a replica belongs to the directory of its broker with the assigned id. Partitions of which that log does not
know, and all partitions without such a log, belong where their copies lie, or where a high-watermark checkpoint names them.
"""

import base64
import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from kafka_forensics.errors import SourceError, UsageError
from kafka_forensics.evidence.inputs import Inputs, LogDir
from kafka_forensics.evidence.ledger import HIGH_WATERMARKS, directory_of, lost_directory_ids
from kafka_forensics.evidence.paths import is_alone
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.controller import ControllerHistory
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.replication.small_files import BOOTSTRAP, META_PROPERTIES
from kafka_forensics.writers.files import write_meta_properties

METADATA_LOG: Final = (CLUSTER_METADATA_TOPIC, 0)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]|\A\.{1,2}\Z")


@dataclass(slots=True)
class TargetDir:
    """A log directory of the output, in the place of one that was given."""

    broker: int | str
    log_dir: str
    """The one that was given, as it was typed."""
    directory: str
    """`broker-N/NAME`, below the output."""
    node_id: int | None = None
    directory_id: str | None = None
    is_empty: bool = False
    """Whether a replaced disk was given."""
    meta_properties: str | None = None
    """`copied` or `built`; None: nothing tells what it should be."""
    partitions: list[TopicPartition] = field(default_factory=list)
    """What belongs there and was salvaged."""
    size_in_bytes: int = 0
    """Of the segments."""
    copies: frozenset[TopicPartition] = frozenset()
    """What lies in the given one."""
    held: frozenset[TopicPartition] = frozenset()
    """That, and what its checkpoint names."""
    given: list[LogDir] = field(default_factory=list)
    """The given one, or its partition directories that were given one by one."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What says whose it is, by name."""

    @property
    def node(self) -> int | str:
        """What the controllers call its broker, as far as that is known."""
        return self.broker if self.node_id is None else self.node_id

    @property
    def is_of_controller(self) -> bool:
        """Whether nothing but the controllers' log is known to belong there."""
        return not self.is_empty and self.held == {METADATA_LOG} and {*self.partitions} <= {METADATA_LOG}


def target_dirs(inputs: Inputs, controller: ControllerHistory | None, voters: Mapping[int, str | None]) -> list[TargetDir]:
    """A target for each log directory that was given, without partitions yet; `voters` are ids of the voters' directories.

    Raises UsageError for an empty one of which nothing tells the node; SourceError for a small file that cannot be read any more.
    """
    targets: dict[tuple[int | str, str], TargetDir] = {}
    for log_dir in inputs.log_dirs:
        path, (copies, held) = _path(log_dir), _held(log_dir)
        if (target := targets.get((log_dir.broker, path))) is not None:
            target.copies |= copies
            target.held |= held
            target.given.append(log_dir)
            continue
        if log_dir.is_empty and log_dir.node_id is None:
            text = f"nothing tells which node's log directory {log_dir.name} is, which is empty"
            raise UsageError(text, hint=f"give it with the node's id, as 3={log_dir.name}")
        broker = str(log_dir.broker if log_dir.node_id is None else log_dir.node_id)
        folder = _UNSAFE.sub("_", broker if broker.startswith("broker-") else f"broker-{broker}")
        base = f"{folder}/{_UNSAFE.sub('_', os.path.basename(os.path.abspath(path)) or '_')}"
        taken = {target.directory for target in targets.values()}
        name = next(name for number in count(1) if (name := base if number == 1 else f"{base}-{number}") not in taken)
        target = TargetDir(log_dir.broker, path, name, log_dir.node_id, is_empty=log_dir.is_empty, copies=copies, held=held)
        target.given.append(log_dir)
        _take_files(inputs, log_dir, target)
        targets[log_dir.broker, path] = target
    _identify(list(targets.values()), inputs, controller, voters)
    return list(targets.values())


def _path(log_dir: LogDir) -> str:
    """The path of a log directory; of a partition directory or a file that was given by itself that of the directory around."""
    path = log_dir.name.rstrip("/") or "/"
    if is_alone(log_dir.found):
        logs = [segment.log for part in log_dir.found.partitions for segment in part.segments]
        for _ in range(2 if any(log is not None and not log.path for log in logs) else 1):
            path = os.path.dirname(path if "://" in path else os.path.abspath(path))
    return path


def _held(log_dir: LogDir) -> tuple[frozenset[TopicPartition], frozenset[TopicPartition]]:
    """What lies in a log directory; and that with what its broker had there by the high watermarks that it wrote down."""
    parts = {(part.topic or "", part.partition or 0): part.suffix for part in log_dir.found.partitions if part.legal}
    marks = log_dir.checkpoints.get(HIGH_WATERMARKS)
    named = {key for key, offset in marks.offsets.items() if offset > 0} if marks is not None else set()
    copies = frozenset(key for key, suffix in parts.items() if suffix is None)
    return copies, copies | (named - parts.keys())


def _take_files(inputs: Inputs, log_dir: LogDir, target: TargetDir) -> None:
    """Take the small files that say what the node is, byte for byte. Raises SourceError."""
    meta, entries = log_dir.meta, log_dir.found.entries
    is_good = meta is not None and not meta.damage and meta.node_id is not None
    target.directory_id = None if meta is None else meta.directory_id
    target.meta_properties = "copied" if is_good and META_PROPERTIES in entries else None
    for name in {BOOTSTRAP, *([META_PROPERTIES] if is_good else [])} & entries.keys():
        data = inputs.read(log_dir.source, entries[name], lambda file: file.read_at(0, file.size_in_bytes))
        if data is None:
            raise SourceError(entries[name].path, "it cannot be read any more")
        target.files[name] = data


def _identify(
    targets: Sequence[TargetDir], inputs: Inputs, controller: ControllerHistory | None, voters: Mapping[int, str | None]
) -> None:
    """Build `meta.properties` where there is none that a broker can read.

    An id that the controllers have for a directory of the node, for what lies there if they know that, and that no other of its
    directories has, is its id: with it they find replicas where they assigned them. Any other is new, and the same for the same
    input.
    """
    metas = [log_dir.meta for log_dir in inputs.log_dirs if log_dir.meta is not None]
    cluster_id = next((meta.cluster_id for meta in metas if meta.cluster_id is not None), None)
    version = max((meta.version for meta in metas if meta.version is not None), default=1)
    for target in targets:
        node = target.node
        if target.meta_properties is not None or not isinstance(node, int) or cluster_id is None:
            continue
        if target.directory_id is None and version:
            known = {other.directory_id for other in targets if other.node == node}
            lost = lost_directory_ids(controller, node, known)
            assigned = sorted((key not in target.held, directory) for key, directory in lost.items())
            made = hashlib.sha256(f"{cluster_id} {target.directory}".encode()).digest()[:16]
            new = base64.urlsafe_b64encode(made).decode().rstrip("=")
            missing = (*(directory for _, directory in assigned), voters.get(node), new)
            target.directory_id = next(one for one in missing if one is not None and one not in known)
        target.node_id, target.meta_properties = node, "built"
        target.files[META_PROPERTIES] = write_meta_properties(
            node_id=node, cluster_id=cluster_id, directory_id=target.directory_id, version=version
        )


def places_of(key: TopicPartition, targets: Sequence[TargetDir], controller: ControllerHistory | None) -> list[TargetDir]:
    """The log directories that a partition belongs to, one of each broker."""
    control = None if controller is None else controller.partitions.get(key)
    if key == METADATA_LOG:  # where a node has it, or else on the new disk of a node that has it nowhere
        with_it = [target for target in targets if key in target.held]
        disks = {target.node: target for target in reversed(targets) if target.is_empty}
        return with_it + [disk for node, disk in disks.items() if node not in {target.node for target in with_it}]
    if control is None or control.replica_assignment is None:
        holding: dict[int | str, TargetDir] = {}
        for target in targets:
            if key in target.copies or (key in target.held and target.node not in holding):
                holding[target.node] = target
        return list(holding.values())
    places = []
    for node in control.replica_assignment:
        own = [target for target in targets if target.node == node and not target.is_of_controller]
        assigned = directory_of(control, node)
        if assigned is not None and all(target.directory_id is not None for target in own):
            own = [target for target in own if target.directory_id == assigned]
        else:  # no id decides: where its copy lies, or else on the new disk
            own.sort(
                key=lambda target: (
                    target.directory_id != assigned,
                    key not in target.copies,
                    key not in target.held,
                    not target.is_empty,
                )
            )
        places += own[:1]
    return places


def put_partition(built: Path, places: Sequence[Path]) -> None:
    """Move a partition's directory to the last of some places, and copy it to the others before. Raises OSError."""
    for place in places[:-1]:
        shutil.copytree(built, place)
    built.rename(places[-1])
