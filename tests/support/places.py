"""Folders of the repository."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLES: Final = ROOT / "sample_logs"
GOLDEN: Final = ROOT / "tests" / "golden"
DUMP_INPUTS: Final = GOLDEN / "dump" / "inputs"
"""Segments and small files of real brokers, with the output of `kafka-dump-log` for them."""
