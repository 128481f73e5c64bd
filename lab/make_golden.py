"""Makes the golden tables from the output of Kafka's DumpLogSegments: `python -m lab.make_golden`; `--inputs` recreates the inputs.

The tool runs on a copy of the inputs, because it creates files and opens others for writing.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Final

from lab.dump_facts import DECODERS, LOGS, as_table, tables
from lab.golden_inputs import BROKEN_INDEXES, make_inputs
from lab.kafka_jars import LAB

GOLDEN: Final = LAB.parent / "tests" / "golden" / "dump"
INPUTS: Final = GOLDEN / "inputs"
OF_TOPICS: Final = {
    "bootstrap": "__cluster_metadata",
    "cluster-metadata": "__cluster_metadata",
    "consumer-offsets": "__consumer_offsets",
    "group-kinds": "__consumer_offsets",
    "group-records": "__consumer_offsets",
    "remote-log-records": "__remote_log_metadata",
    "share-state": "__share_group_state",
    "share-records": "__share_group_state",
    "transaction-state": "__transaction_state",
}
"""Input with binary records → its internal topic; Kafka's decoder prints the records instead of text."""


def input_files() -> list[str]:
    """All inputs relative to their folder, without the sound logs of broken indexes."""
    files = sorted(path.relative_to(INPUTS).as_posix() for path in INPUTS.rglob("*") if path.is_file())
    return [name for name in files if not (name.endswith(".log") and name.partition("/")[0] in BROKEN_INDEXES)]


def decoders(files: list[str]) -> dict[str, str]:
    """Log of an internal topic → option that decodes its records."""
    of_topics = {name: OF_TOPICS[name.partition("/")[0]] for name in files if name.partition("/")[0] in OF_TOPICS}
    return {name: DECODERS[topic] for name, topic in of_topics.items() if name.endswith(LOGS)}


def table_name(file: str) -> str:
    """The file name of an input's table, from its directory and suffix."""
    return f"{file.partition('/')[0]}{Path(file).suffix}.tsv"


def main() -> None:
    """Replace all golden tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", action="store_true", help="take the inputs from sample_logs anew")
    if parser.parse_args().inputs or not INPUTS.is_dir():
        make_inputs(INPUTS)
    for old in GOLDEN.glob("*.tsv"):
        old.unlink()
    files = input_files()
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        directory = Path(scratch) / "inputs"
        shutil.copytree(INPUTS, directory)
        for file, rows in tables(files, directory, decoders=decoders(files)):
            (GOLDEN / table_name(file)).write_text(as_table(rows))
    print(f"{len(files)} tables")


if __name__ == "__main__":
    main()
