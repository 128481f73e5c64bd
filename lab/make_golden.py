"""Golden dumps: what Kafka's own DumpLogSegments prints. `python -m lab.make_golden`, one minute; `--inputs` takes inputs anew.

Every run gets its own copy of an input directory, since the tool creates and opens files for writing, and stands in it, so that no
path of this machine is printed. Standard output is kept byte for byte; how the tool ended and what it said on standard error is in
`manifest.json`.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from lab.golden_inputs import BROKEN_INDEXES, make_inputs
from lab.jvm import DUMP_LOG_SEGMENTS, run_tool
from lab.kafka_jars import KAFKA_VERSION, LAB

GOLDEN: Final = LAB.parent / "tests" / "golden" / "dump"
LOG_MODES: Final = {
    "plain": [],
    "deep": ["--deep-iteration"],
    "print": ["--print-data-log"],
    "deep-skip": ["--deep-iteration", "--skip-record-metadata"],
    "print-skip": ["--print-data-log", "--skip-record-metadata"],
}
INDEX_MODES: Final = {"plain": [], "verify": ["--verify-index-only"], "sanity": ["--index-sanity-check"]}
MODES: Final[dict[str, dict[str, list[str]]]] = {
    ".log": LOG_MODES,
    ".index": INDEX_MODES,
    ".timeindex": INDEX_MODES,
    ".txnindex": {"plain": []},
    ".snapshot": {"plain": []},
    ".checkpoint": {"plain": [], "deep": ["--deep-iteration"], "metadata": ["--cluster-metadata-decoder"]},
}
DECODERS: Final = {
    "cluster-metadata": {"metadata": ["--cluster-metadata-decoder"]},
    **{name: {"offsets": ["--offsets-decoder"]} for name in ("consumer-offsets", "group-kinds", "group-records")},
    **{name: {"share-state": ["--share-group-state-decoder"]} for name in ("share-state", "share-records")},
    "transaction-state": {"transactions": ["--transaction-log-decoder"]},
}
"""Inputs whose records are binary: printed by Kafka's own decoder instead of as text."""
STDERR_CHARACTERS: Final = 400


@dataclass(frozen=True, slots=True)
class Case:
    """One run: `file` is relative to `inputs/`, `stdout` names the golden file."""

    file: str
    mode: str
    arguments: list[str]
    exit_code: int
    stdout: str
    stderr: str


def modes(name: str, suffix: str) -> dict[str, list[str]]:
    """Mode → options for one input file; none for the unharmed log that stands beside broken indexes."""
    if suffix == ".log" and name in BROKEN_INDEXES:
        return {}
    if suffix == ".log" and name in DECODERS:
        return {"plain": LOG_MODES["plain"], "deep": LOG_MODES["deep"], **DECODERS[name]}
    return MODES[suffix]


def run(source: Path, mode: str, options: list[str]) -> Case:
    """Dump one file in one mode and keep what was printed."""
    name = source.parent.name
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        directory = Path(scratch) / name
        shutil.copytree(source.parent, directory)
        done = run_tool(DUMP_LOG_SEGMENTS, [*options, "--files", source.name], directory=directory)
        stderr = done.stderr.decode(errors="replace").replace(f"{directory}/", "")
    golden = f"{name}{source.suffix}.{mode}.txt"
    (GOLDEN / golden).write_bytes(done.stdout)
    return Case(f"{name}/{source.name}", mode, options, done.exit_code, golden, stderr[:STDERR_CHARACTERS])


def cases(inputs: Path) -> Iterator[Case]:
    """Run everything, in order."""
    for source in sorted(path for path in inputs.rglob("*") if path.is_file()):
        for mode, options in modes(source.parent.name, source.suffix).items():
            yield run(source, mode, options)


def main() -> None:
    """Make all golden dumps, replacing the old ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", action="store_true", help="take the inputs from sample_logs anew")
    inputs = GOLDEN / "inputs"
    if parser.parse_args().inputs or not inputs.is_dir():
        make_inputs(inputs)
    for old in GOLDEN.glob("*.txt"):
        old.unlink()
    done = [asdict(case) for case in cases(inputs)]
    manifest = {"tool": DUMP_LOG_SEGMENTS, "version": KAFKA_VERSION, "cases": done}
    (GOLDEN / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    refused = sum(case["exit_code"] != 0 for case in done)
    print(f"{len(done)} dumps, of which the tool refused {refused}")


if __name__ == "__main__":
    main()
