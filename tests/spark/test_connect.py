"""`export` and `scan` with `--spark-remote`: a Spark Connect server gives the answer of the local engine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from tests.export import exports
from tests.export.exports import RUN, contents, manifest
from tests.spark.cluster import QUICK_JAVA, spark_environment, spark_process
from tests.support.object_stores import free_port
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SUBMIT = "org.apache.spark.deploy.SparkSubmit"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SAMPLE = str(SAMPLES / "unclean-election")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with two cores that tries a task four times."""
    folder = tmp_path_factory.mktemp("connect")
    environment = spark_environment(folder) | {"SPARK_DAEMON_MEMORY": "768m"}
    port = free_port()
    settings = {
        "master": "local[2,4]",
        "driver.bindAddress": "127.0.0.1",
        "driver.extraJavaOptions": QUICK_JAVA,
        "ui.enabled": "false",
        "connect.grpc.binding.address": "127.0.0.1",
        "connect.grpc.binding.port": str(port),
    }
    configured = [word for name, value in settings.items() for word in ("--conf", f"spark.{name}={value}")]
    arguments = (SUBMIT, "--class", SERVER, *configured, "spark-internal")
    with spark_process(folder / "connect.log", environment, "Spark Connect server started", *arguments):
        yield f"sc://127.0.0.1:{port}"


def run(server: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in another process, because a process cannot be a Connect client and have a local Spark."""
    command = [sys.executable, "-m", "kafka_forensics", *arguments, "--engine", "spark", "--spark-remote", server]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


def test_an_export_equals_that_of_the_local_engine(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(server, "export", SAMPLE, "--output", str(tmp_path / "spark"), "--show-payloads", "--format", "tsv")
    assert (done.returncode, done.stderr) == (0, "")
    assert exports.export(tmp_path / "local", SAMPLE, "--show-payloads") == 0
    assert done.stdout == capsys.readouterr().out
    assert contents(tmp_path / "spark") == contents(tmp_path / "local")
    written, expected = manifest(tmp_path / "spark"), manifest(tmp_path / "local")
    assert written.pop("tool") == expected.pop("tool") | {"engine": "spark"}
    assert RUN.sub("", repr(written)) == RUN.sub("", repr(expected))


def test_a_scan_equals_that_of_the_local_engine(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(server, "scan", SAMPLE, "--format", "json")
    assert json.loads(done.stdout)["tool"]["engine"] == "spark"
    assert done.returncode == outcome(["scan", SAMPLE, "--format", "json"])
    assert (done.stdout.replace('"engine": "spark"', '"engine": "local"'), done.stderr) == capsys.readouterr()
