"""Log directories whose internal topics were rewritten batch by batch, and answers freed from what a rewriting may change."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c

from kafka_forensics.model.constants import CRC_START, WITNESS_TOPICS
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.model.coordinators import Group, OffsetCommit
from kafka_forensics.model.findings import Finding
from kafka_forensics.writers.witness_batches import KEPT_FEATURES, KEPT_SETTINGS, witness_batch
from lab.mutations import batch_ranges

_INTERNAL: Final = re.compile(rf"(?:.*/)?({'|'.join(WITNESS_TOPICS)})-\d+/\d+(?:-\d+)?\.(?:log|checkpoint)")
_PLACES: Final = frozenset({"byte_start", "byte_end", "record_bytes", "size_in_bytes"})
_TOPIC: Final = 2


def rewritten(topic: str, log: bytes) -> bytes:
    """A log or a snapshot of an internal topic, each batch with a right CRC in its substitute's place where there is one."""
    ranges = batch_ranges(log)
    parts = []
    for start, end in ranges:
        batch = log[start:end]
        crc = int.from_bytes(batch[CRC_START - 4 : CRC_START], "big")
        is_good = batch[16] < 2 or google_crc32c.value(batch[CRC_START:]) == crc
        parts.append((witness_batch(topic, batch) if is_good else None) or batch)
    return b"".join([*parts, log[ranges[-1][1] if ranges else 0 :]])


def rewrite_tree(log_dirs: Path, target: Path) -> int:
    """Write a copy of folders to `target`; how many files in it were rewritten."""
    count = 0
    for path in sorted(log_dirs.rglob("*")):
        copy = target / path.relative_to(log_dirs)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        data = path.read_bytes()
        internal = _INTERNAL.fullmatch(path.as_posix())
        if internal is not None:
            count += bool(data)
            data = rewritten(internal[1], data)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    return count


def told(answer: Any) -> Any:
    """An answer as plain values, without places in files, sizes of records, and what no analysis reads."""
    match answer:
        case OffsetCommit():
            return answer._replace(metadata=str(len(answer.metadata.encode())))
        case dict():
            return {name: told(value) for name, value in answer.items() if name not in _PLACES}
        case list() | tuple():
            return [told(value) for value in answer]
        case _ if not is_dataclass(answer):
            return answer
        case _:
            values = {field.name: getattr(answer, field.name) for field in fields(answer)}
    if isinstance(answer, Group):
        del values["metadata"]
    if isinstance(answer, Finding):
        values["evidence"] = dict(answer.evidence)
    if isinstance(answer, PartitionControl):
        values["configs"] = _settings(answer.configs)
    if isinstance(answer, ControllerHistory):
        values["configs"] = {topic: _settings(configs) for topic, configs in answer.configs.items()}
        values["features"] = {name: level for name, level in answer.features.items() if name in KEPT_FEATURES}
    return told(values)


def _settings(configs: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name in KEPT_SETTINGS[_TOPIC]}
