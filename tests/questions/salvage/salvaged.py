"""Salvages of copies of one partition, and checks of their output."""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import MANIFEST, Refused, Salvaged, SalvagedPartition, SalvageOptions, salvage
from kafka_forensics.scanning.engine.local import scan
from tests.support.json_schemas import json_schema
from tests.support.segments import batch

TOPIC, PARTITION = "orders", 0
NAME = f"{TOPIC}-{PARTITION}"


def batches_of(count: int, *, records: int = 2, epochs: Sequence[int] = (0,), start: int = 0, values: bytes = b"v") -> list[bytes]:
    """Contiguous batches with different values that start with `values`; each epoch has as many batches."""
    return [
        batch(start + records * number, records, epoch=epochs[number * len(epochs) // count], value=(values + b"%d" % number) * 30)
        for number in range(count)
    ]


def salvaged_of(folder: Path, output: Path, *, prefer: str | None = None, allow_gaps: bool = False, **options: Any) -> Salvaged:
    return salvage([str(folder)], output, ScanOptions(**options), SalvageOptions(prefer, allow_gaps))


def of_first(output: Path, name: str = NAME) -> Path:
    """The entry of this name in the first log directory of a salvage that has one; without one, where it would be."""
    return min(output.glob(f"broker-*/*/{name}"), default=output / "broker-1" / "broker-1" / name)


def log_of(output: Path, name: str = NAME) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(of_first(output, name).glob("*.log")))


def taken(folder: Path, expected: Iterable[bytes], name: str = "out", **options: Any) -> SalvagedPartition:
    """The only partition of a salvage of `folder/in`, which has these batches; checks all of its output."""
    salvaged = salvaged_of(folder / "in", folder / name, **options)
    assert not salvaged.refused, salvaged.refused
    assert log_of(folder / name) == b"".join(expected)
    check_output(folder / "in", folder / name)
    (partition,) = salvaged.partitions
    return partition


def refused(folder: Path, **options: Any) -> Refused:
    """Why a salvage of `folder/in` refuses its only partition; checks that the partition has no directory."""
    output = folder / f"refused-{sum(path.name.startswith('refused-') for path in folder.iterdir())}"
    salvaged = salvaged_of(folder / "in", output, **options)
    assert not salvaged.partitions
    assert not of_first(output).exists()
    check_output(folder / "in", output)
    (refusal,) = salvaged.refused
    return refusal


def check_output(folder: Path, output: Path) -> None:
    """The manifest lists every byte of every log directory, equal to that of the copy that it names; checkpoints list exactly the
    partitions; a scan finds nothing above `info` except gaps; no file says that a broker stopped cleanly."""
    manifest = json.loads((output / MANIFEST).read_text())
    Draft202012Validator(json_schema("salvage")).validate(manifest)
    assert not [*output.rglob(".kafka_cleanshutdown")]
    gaps = set()
    for partition in manifest["partitions"]:
        name = f"{partition['topic']}-{partition['partition']}"
        assert [*output.glob(f"broker-*/*/{name}")]
        assert {f"{row['directory']}/{name}" for row in partition["replicas"]} == {
            str(path.relative_to(output)) for path in output.glob(f"broker-*/*/{name}")
        }
        for place in [output / row["directory"] for row in partition["replicas"]]:
            sizes = dict[str, int]()
            for taken in partition["ranges"]:
                assert taken["byte_start"] == sizes.get(taken["file"], 0)
                sizes[taken["file"]] = taken["byte_end"]
                ours = (place / taken["file"]).read_bytes()[taken["byte_start"] : taken["byte_end"]]
                source = folder / f"broker-{taken['broker']}" / taken["source_file"]
                assert ours == source.read_bytes()[taken["source_byte_start"] : taken["source_byte_end"]]
                assert sha256(ours).hexdigest() == taken["sha256"]
            logs = (place / name).glob("*.log")
            assert {f"{path.parent.name}/{path.name}": path.stat().st_size for path in logs if path.stat().st_size} == sizes
        gaps |= {(gap["offset_start"], gap["offset_end"]) for gap in partition["gaps"]}
    refused = {
        f"{row['topic']}-{row['partition']}" for row in manifest["refused"]
    }  # they keep their lines, and the scan reports them as missing
    for path in output.glob("broker-*/*/recovery-point-offset-checkpoint"):
        named = {"-".join(line.split()[:2]) for line in path.read_text().splitlines()[2:]}
        assert named - refused == {part.name for part in path.parent.iterdir() if part.is_dir()} - {"__cluster_metadata-0"}
    result = scan([str(output)], ScanOptions(deep=True)) if manifest["partitions"] else None
    loud = [] if result is None else [finding for finding in result.findings if finding.severity.value != "info"]
    loud = [finding for finding in loud if f"{finding.place.topic}-{finding.place.partition}" not in refused]
    if any("topic_id" in partition["unseen"] for partition in manifest["partitions"]):
        loud = [finding for finding in loud if finding.kind != "TOPIC_ID_MISSING"]
    assert {(finding.place.offset_start, finding.place.offset_end) for finding in loud} <= gaps
