"""Makes the golden merges of state batches with Kafka's share coordinator: `python -m lab.share_merges`, a few seconds."""

import json
import random
import tempfile
from pathlib import Path
from typing import Final

from kafka_forensics.model.json_objects import Json
from lab.errors import LabError
from lab.jvm import run_java
from lab.kafka_jars import KAFKA_VERSION, LAB

MERGER: Final = LAB / "java" / "MergeStates.java"
GOLDEN: Final = LAB.parent / "tests" / "golden" / "share-merges.json"
CASES: Final = 400
SEED: Final = 14
STATES: Final = (0, 2, 4)


def some_batches(rng: random.Random) -> list[list[int]]:
    """Up to six batches (first offset, last offset, delivery state, delivery count) close to each other."""
    firsts = [rng.randrange(40) for _ in range(rng.randrange(7))]
    return [[first, first + rng.randrange(12), rng.choice(STATES), rng.randrange(1, 4)] for first in firsts]


def cases() -> list[Json]:
    """Random cases, the same in every run."""
    rng = random.Random(SEED)
    return [
        {"before": some_batches(rng), "after": some_batches(rng), "start": rng.choice((-1, rng.randrange(45)))}
        for _ in range(CASES)
    ]


def main() -> None:
    """Run Kafka's class on all cases, and store cases and results."""
    to_merge = cases()
    with tempfile.TemporaryDirectory(prefix="merges-") as scratch:
        json_file = Path(scratch) / "cases.json"
        json_file.write_text(json.dumps(to_merge))
        done = run_java(MERGER, [str(json_file)])
    if done.exit_code != 0:
        raise LabError(f"no answers: {done.stderr[-2000:].decode(errors='replace')}")
    merges = [case | {"merged": merged} for case, merged in zip(to_merge, json.loads(done.stdout), strict=True)]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in merges)
    GOLDEN.write_text(f'{{"version":"{KAFKA_VERSION}","cases":[\n{lines}\n]}}\n')
    print(f"{len(merges)} merges")


if __name__ == "__main__":
    main()
