"""Unpacks, changes and repacks bundles, replaces pseudonyms, and writes a small broker to collect."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import cramjam
import numpy as np
import pytest

from kafka_forensics.model.batches import BatchColumn, Damage
from kafka_forensics.model.pseudonyms import PSEUDONYM
from kafka_forensics.questions.collect import CollectOptions, collect
from kafka_forensics.storage.bundles import SectionKind, decompressed, part_chunks, read_index
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.writers.bundle_columns import write_batches
from tests.support.brokers import put_consumer_offsets, put_replica, put_segment
from tests.support.controllers import put_controller
from tests.support.groups import commit_key, commit_value, coordinator_batches
from tests.support.segments import legacy_entry, log, marker, producer_batch, segment_file

LOG: Final = segment_file(0)
ORDERS: Final = f"orders-0/{LOG}"
PAYMENTS: Final = f"payments-0/{LOG}"
OFFSETS: Final = f"__consumer_offsets-0/{LOG}"
CHECKPOINT: Final = "replication-offset-checkpoint"
SIZE, MTIME, ALLOCATED, REFUSED, LEFT_OUT, IS_LOG, HASHED, SECTIONS = range(2, 10)
"""Indexes into the listing's row of a file."""


def put_broker(folder: Path, *, batches: int = 6, secret: bytes = b"value") -> Path:
    """Write a sound log directory with one log of every kind."""
    log_dir = put_replica(folder, 1, log(batches, value=secret), high_watermark=2 * batches)
    transaction = producer_batch(0, secret.decode(), is_transactional=True) + marker(1, commit=True)
    for partition, data in (("payments-0", transaction), ("old-0", legacy_entry(0) + legacy_entry(1))):
        put_segment(log_dir / partition, 0, data)
    put_consumer_offsets(
        log_dir,
        coordinator_batches((commit_key(topic="orders"), commit_value(3)), (commit_key("other", "orders"), commit_value(2))),
    )
    put_controller(log_dir, isr=[1], replicas=[1], leader=1, topic_id=bytes(15) + b"\7", topic_name="orders")
    return log_dir


def make_bundle(log_dir: Path, path: Path, options: CollectOptions | None = None) -> Path:
    with path.open("w+b") as file:
        collect([str(log_dir)], options or CollectOptions(), file)
    return path


def record_opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by the path of every file that a local source opens."""
    names: list[str] = []
    original_open = LocalSource.open

    def recording_open(self: LocalSource, path: str) -> Any:
        names.append(path)
        return original_open(self, path)

    monkeypatch.setattr(LocalSource, "open", recording_open)
    return names


@dataclass
class Part:
    sections: list[list[Any]]
    files: list[Any]
    begun: list[str] = field(default_factory=list)

    def data(self) -> bytes:
        sections = [(path, SectionKind(kind), start, end, data) for path, kind, start, end, data in self.sections]
        return b"".join(part_chunks(sections, self.files, self.begun))


@dataclass
class UnpackedBundle:
    about: dict[str, Any]
    parts: list[Part]
    listing: dict[str, Any]

    def copy(self) -> "UnpackedBundle":
        return deepcopy(self)

    def row(self, path: str) -> list[Any]:
        return next(row for row in self.listing["files"] if row[0] == path)

    def sections(self, path: str, kind: SectionKind) -> list[list[Any]]:
        return [section for part in self.parts for section in part.sections if section[:2] == [path, kind.value]]

    def with_new_listing(self) -> "UnpackedBundle":
        for row in self.listing["files"]:
            row[SECTIONS] = []
        rows = {row[0]: row for row in self.listing["files"]}
        for number, part in enumerate(self.parts):
            for path, section in read_index(part.data(), number).sections:
                rows[path][SECTIONS].append([*section[:3], section.kind.value, *section[4:]])
        return self

    def members(self) -> dict[str, bytes]:
        return bundle_members(self.about, [part.data() for part in self.parts], json.dumps(self.listing).encode())

    def write(self, path: Path) -> Path:
        path.write_bytes(tar_of(with_checksums(self.members())))
        return path


def bundle_members(about: object, parts: list[bytes], listing: bytes) -> dict[str, bytes]:
    """The members of a bundle with these decompressed parts and this listing, without `seal.json`."""
    members = {"bundle.json": json.dumps(about).encode()}
    members |= {f"parts/{number:06}.zst": bytes(cramjam.zstd.compress(part)) for number, part in enumerate(parts)}
    return members | {"listing.zst": bytes(cramjam.zstd.compress(listing))}


def with_checksums(members: dict[str, bytes]) -> dict[str, bytes]:
    sums = {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in members.items() if name != "seal.json"}
    return {**members, "seal.json": json.dumps({"members": sums}).encode()}


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


def stored_members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: opened.read() for member in tar if (opened := tar.extractfile(member)) is not None}


def decompressed_members(path: Path) -> dict[str, bytes]:
    return {name: decompressed(data, 1 << 30) if name.endswith(".zst") else data for name, data in stored_members(path).items()}


def unpack_bundle(path: Path) -> UnpackedBundle:
    members = decompressed_members(path)
    parts = []
    for number, name in enumerate(sorted(name for name in members if name.startswith("parts/"))):
        data = members[name]
        index = read_index(data, number)
        sections = [
            [
                file_path,
                section.kind.value,
                section.start,
                section.end,
                data[section.position : section.position + section.size_in_bytes],
            ]
            for file_path, section in index.sections
        ]
        parts.append(Part(sections, list(index.files), index.begun))
    return UnpackedBundle(json.loads(members["bundle.json"]), parts, json.loads(members["listing.zst"]))


def batches_section(columns: Any, damage: Sequence[tuple[Damage, bool]] = (), *, written: Any = None, digests: Any = None) -> bytes:
    """The section of a (BATCH_COLUMNS, n) matrix; default digests are zeros, as for batches that could not be digested."""
    rows = columns.shape[1]
    return write_batches(
        columns,
        damage,
        written=columns[BatchColumn.LAST_OFFSET] if written is None else written,
        digests=np.zeros((rows, 2), np.uint64) if digests is None else digests,
    )


Names = Mapping[str, tuple[str, str]]
"""Pseudonym → (kind, name), as `PseudonymMap` takes it."""


def names_by_pseudonym(path: Path) -> dict[str, tuple[str, str]]:
    return {pseudonym: (row["kind"], row["name"]) for pseudonym, row in json.loads(path.read_text())["names"].items()}


def replace_pseudonyms(text: str, names: Names) -> str:
    """`text` with every pseudonym that `names` holds replaced by its name."""
    return PSEUDONYM.sub(lambda match: names[match[0]][1] if match[0] in names else match[0], text)
