"""The plan and the recovery of the sample's copies, made once a session."""

import shutil
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from tests.support.audit import put_audit


@pytest.fixture(scope="session")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`before`: copies; `plan.json`: broker 2 leads, 1 and 3 truncate at 300; `lost`: records recovered to keep broker 1."""
    folder = tmp_path_factory.mktemp("incident")
    copies = str(put_audit(folder / "before"))
    assert outcome(["plan", copies, "--topic", "audit", "--output", str(folder / "plan.json"), "--quiet"]) == 0
    assert outcome(["recover", copies, "--output", str(folder / "lost"), "--quiet"]) == 1
    return folder


@pytest.fixture
def plan(incident: Path, tmp_path: Path) -> Path:
    """The plan; a test may change it."""
    return Path(shutil.copy(incident / "plan.json", tmp_path))


@pytest.fixture
def lost(incident: Path, tmp_path: Path) -> Path:
    """The recovered records; a test may change them."""
    return shutil.copytree(incident / "lost", tmp_path / "lost")
