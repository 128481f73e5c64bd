"""Salvages of copies of one partition, and what came of them, told by their bytes."""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import MANIFEST, Refused, Salvaged, SalvagedPartition, SalvageOptions, salvage
from tests.support.json_schemas import json_schema
from tests.support.segments import batch

TOPIC, PARTITION = "orders", 0
NAME = f"{TOPIC}-{PARTITION}"


def batches_of(count: int, *, records: int = 2, epochs: Sequence[int] = (0,), start: int = 0, values: bytes = b"v") -> list[bytes]:
    """Batches that join, each with a value of its own that begins with `values`; the epochs are shared out evenly."""
    return [
        batch(start + records * number, records, epoch=epochs[number * len(epochs) // count], value=(values + b"%d" % number) * 30)
        for number in range(count)
    ]


def salvaged_of(folder: Path, output: Path, *, prefer: str | None = None, allow_gaps: bool = False, **given: Any) -> Salvaged:
    return salvage([str(folder)], output, ScanOptions(**given), SalvageOptions(prefer, allow_gaps))


def log_of(output: Path, name: str = NAME) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((output / name).glob("*.log")))


def taken(folder: Path, expected: Iterable[bytes], name: str = "out", **given: Any) -> SalvagedPartition:
    """The one partition of a salvage of `folder/in`, which has these batches; all of its output is checked."""
    salvaged = salvaged_of(folder / "in", folder / name, **given)
    assert not salvaged.refused, salvaged.refused
    assert log_of(folder / name) == b"".join(expected)
    check_output(folder / "in", folder / name)
    (partition,) = salvaged.partitions
    return partition


def refused(folder: Path, **given: Any) -> Refused:
    """Why a salvage of `folder/in` takes nothing of its one partition, and makes no directory for it."""
    output = folder / f"refused-{sum(path.name.startswith('refused-') for path in folder.iterdir())}"
    salvaged = salvaged_of(folder / "in", output, **given)
    assert not salvaged.partitions
    assert not (output / NAME).exists()
    check_output(folder / "in", output)
    (refusal,) = salvaged.refused
    return refusal


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
