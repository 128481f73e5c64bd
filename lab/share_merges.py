"""Golden merges: what Kafka's own share coordinator makes of state batches. `python -m lab.share_merges`, a few seconds."""

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


def some_batches(chance: random.Random) -> list[list[int]]:
    """Up to six batches (first, last, state, count) near each other."""
    firsts = [chance.randrange(40) for _ in range(chance.randrange(7))]
    return [[first, first + chance.randrange(12), chance.choice(STATES), chance.randrange(1, 4)] for first in firsts]


def cases() -> list[Json]:
    """The same on every run."""
    chance = random.Random(SEED)
    return [
        {"before": some_batches(chance), "after": some_batches(chance), "start": chance.choice((-1, chance.randrange(45)))}
        for _ in range(CASES)
    ]


def main() -> None:
    """Ask Kafka's class, and keep questions and answers."""
    to_merge = cases()
    with tempfile.TemporaryDirectory(prefix="merges-") as scratch:
        given = Path(scratch) / "cases.json"
        given.write_text(json.dumps(to_merge))
        done = run_java(MERGER, [str(given)])
    if done.exit_code != 0:
        raise LabError(f"no answers: {done.stderr[-2000:].decode(errors='replace')}")
    merges = [case | {"merged": merged} for case, merged in zip(to_merge, json.loads(done.stdout), strict=True)]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in merges)
    GOLDEN.write_text(f'{{"version":"{KAFKA_VERSION}","cases":[\n{lines}\n]}}\n')
    print(f"{len(merges)} merges")


if __name__ == "__main__":
    main()
