"""`examples/airflow_dag.py` in a real Airflow, which `make nightly` installs into an environment of its own."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.spark.cluster import spark_environment
from tests.support.places import ROOT, SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

EXAMPLES = ROOT / "examples"
AIRFLOW = ROOT / ".venv-airflow" / "bin"
TELL = """
import importlib.util, json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
[dag] = bag.dags.values()
[task] = dag.tasks
has_package = importlib.util.find_spec("kafka_forensics") is not None
told = {"errors": bag.import_errors, "dag": dag.dag_id, "task": task.task_id, "application": task.application}
print(json.dumps(told | {"has_package": has_package}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """That of an Airflow with a database of its own, and with a connection to a Spark on this machine."""
    folder = tmp_path_factory.mktemp("airflow")
    spark = spark_environment(folder)
    kept = {name: value for name, value in spark.items() if name != "PYTHONPATH" and not name.startswith("AIRFLOW_")}
    made = kept | {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2,4]"}),
        "PATH": os.pathsep.join([os.path.join(spark["SPARK_HOME"], "bin"), os.environ["PATH"]]),
    }
    run([AIRFLOW / "airflow", "db", "migrate"], made)
    return made


def run(command: list[Path | str], environment: dict[str, str]) -> str:
    """Standard output. Raises AssertionError where the command fails."""
    done = subprocess.run(command, env=environment, cwd=environment["AIRFLOW_HOME"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def night(environment: dict[str, str], date: str, **params: object) -> "subprocess.CompletedProcess[str]":
    """A run of the DAG for a night, scheduler and all left out."""
    command = [str(AIRFLOW / "airflow"), "dags", "test", "kafka_nightly_audit", f"{date}T03:30:00", "--conf", json.dumps(params)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)


def test_airflow_takes_the_file_and_knows_nothing_else_of_these_tests(environment: dict[str, str]) -> None:
    told = json.loads(run([AIRFLOW / "python", "-c", TELL, str(EXAMPLES / "airflow_dag.py")], environment).splitlines()[-1])
    audit = str(EXAMPLES / "nightly_audit.py")
    assert told == {"errors": {}, "dag": "kafka_nightly_audit", "task": "audit", "application": audit, "has_package": False}


def test_two_nights_are_audited_and_the_second_has_lost_records(environment: dict[str, str], tmp_path: Path) -> None:
    snapshots, output = tmp_path / "snapshots", tmp_path / "audits"
    snapshots.mkdir()
    for date, sample in (("2026-11-24", "healthy"), ("2026-11-25", "unclean-election")):
        (snapshots / date).symlink_to(SAMPLES / sample)
    where = {"snapshots": str(snapshots), "output": str(output)}
    first = night(environment, "2026-11-24", **where, compare=False)
    assert first.returncode == 0, first.stdout[-4000:] + first.stderr[-4000:]
    second = night(environment, "2026-11-25", **where)
    assert second.returncode != 0
    assert "Error code is: 1." in second.stdout + second.stderr, second.stdout[-4000:]
    for date in ("2026-11-24", "2026-11-25"):
        (snapshot,) = output.glob(f"cluster=*/snapshot={date}")
        assert (snapshot / "_SUCCESS").exists()
        assert list((snapshot / "findings").iterdir())
    assert {path.name for path in (tmp_path / "audits-changes").iterdir()} == {"2026-11-25"}
