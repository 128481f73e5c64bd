"""Copies of one partition for salvages, and what came of them: the batches of the output, one by one, told by their bytes."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import MANIFEST, Salvaged, SalvageOptions, salvage
from tests.support.json_schemas import json_schema
from tests.support.segments import batch

TOPIC, PARTITION = "orders", 0
NAME = f"{TOPIC}-{PARTITION}"


def put_copy(
    folder: Path,
    broker: int,
    segments: Mapping[int, bytes],
    *,
    high_watermark: int = 0,
    epochs: Sequence[tuple[int, int]] | None = None,
) -> Path:
    """`folder/broker-N`, a log directory with a partition of these segments; `epochs` is its leader-epoch-checkpoint."""
    log_dir = folder / f"broker-{broker}"
    directory = log_dir / NAME
    directory.mkdir(parents=True)
    for base_offset, data in segments.items():
        (directory / f"{base_offset:020d}.log").write_bytes(data)
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{TOPIC} {PARTITION} {high_watermark}\n")
    if epochs is not None:
        lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
        (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")
    return log_dir


def batches_of(count: int, *, records: int = 2, epochs: Sequence[int] = (0,), start: int = 0, values: bytes = b"v") -> list[bytes]:
    """Batches that join, each with a value of its own that begins with `values`; the epochs are shared out evenly."""
    return [
        batch(start + records * number, records, epoch=epochs[number * len(epochs) // count], value=(values + b"%d" % number) * 30)
        for number in range(count)
    ]


def salvaged_of(folder: Path, output: Path, *, prefer: str | None = None, allow_gaps: bool = False, **given: Any) -> Salvaged:
    """A salvage of all copies in a folder."""
    return salvage([str(folder)], output, ScanOptions(**given), SalvageOptions(prefer, allow_gaps))


def log_of(output: Path, name: str = NAME) -> bytes:
    """All bytes of a salvaged log."""
    return b"".join(path.read_bytes() for path in sorted((output / name).glob("*.log")))


def check_output(folder: Path, output: Path) -> None:
    """Every byte of the output is accounted for by its manifest and is what stands in the copy named there; a scan of it finds
    nothing above `info` but its gaps; nothing says that a broker stopped cleanly."""
    told = json.loads((output / MANIFEST).read_text())
    Draft202012Validator(json_schema("salvage")).validate(told)
    assert not (output / ".kafka_cleanshutdown").exists()
    gaps = set()
    for partition in told["partitions"]:
        sizes = dict[str, int]()
        for taken in partition["ranges"]:
            assert taken["byte_start"] == sizes.get(taken["file"], 0)
            sizes[taken["file"]] = taken["byte_end"]
            ours = (output / taken["file"]).read_bytes()[taken["byte_start"] : taken["byte_end"]]
            source = folder / f"broker-{taken['broker']}" / taken["source_file"]
            assert ours == source.read_bytes()[taken["source_byte_start"] : taken["source_byte_end"]]
            assert sha256(ours).hexdigest() == taken["sha256"]
        logs = (output / f"{partition['topic']}-{partition['partition']}").glob("*.log")
        assert {f"{path.parent.name}/{path.name}": path.stat().st_size for path in logs if path.stat().st_size} == sizes
        gaps |= {(gap["offset_start"], gap["offset_end"]) for gap in partition["gaps"]}
    result = scan([f"output={output}"], ScanOptions(deep=True)) if told["partitions"] else None
    loud = [] if result is None else [finding for finding in result.findings if finding.severity.value != "info"]
    assert {(finding.place.offset_start, finding.place.offset_end) for finding in loud} <= gaps
