"""The partition `audit-0` of the sample `unclean-election`, alone."""

import shutil
from pathlib import Path

from tests.support.places import SAMPLES


def put_audit(folder: Path) -> Path:
    """`audit-0` of the sample with the controller's log, and nothing else."""
    for broker in (SAMPLES / "unclean-election").iterdir():
        for name in ("audit-0", "__cluster_metadata-0"):
            shutil.copytree(broker / name, folder / broker.name / name)
        for file in broker.iterdir():
            if file.is_file():
                shutil.copy(file, folder / broker.name)
    return folder
