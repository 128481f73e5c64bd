"""`export` and `scan` with `--spark-remote`: a Spark Connect server does the work, for the local engine's answer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from tests.export import exports
from tests.export.exports import manifest
from tests.spark.cluster import QUICK_JAVA, spark_environment, spark_process
from tests.support.object_stores import free_port
from tests.support.places import SAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SUBMIT = "org.apache.spark.deploy.SparkSubmit"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SAMPLE = str(SAMPLES / "unclean-election")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the one server of these tests, with two cores, which tries tasks up to four times."""
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
    """A command in a process of its own, for no process can be a client and have a Spark of its own as well."""
    command = [sys.executable, "-m", "kafka_forensics", *arguments, "--engine", "spark", "--spark-remote", server]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


def files(target: Path) -> dict[str, bytes]:
    """Path below the target → bytes of everything that lies there but the manifest, which names the engine."""
    found = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert found.pop("_manifest.json")
    return found


def test_an_export_is_what_the_local_engine_writes(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(server, "export", SAMPLE, "--output", str(tmp_path / "there"), "--show-payloads", "--format", "tsv")
    assert (done.returncode, done.stderr) == (0, "")
    assert exports.export(tmp_path / "here", SAMPLE, "--show-payloads") == 0
    assert done.stdout == capsys.readouterr().out
    assert files(tmp_path / "there") == files(tmp_path / "here")
    told, expected = manifest(tmp_path / "there"), manifest(tmp_path / "here")
    assert told.pop("tool") == expected.pop("tool") | {"engine": "spark"}
    assert told == expected


def test_a_scan_is_what_the_local_engine_says(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(server, "scan", SAMPLE, "--format", "json")
    assert json.loads(done.stdout)["tool"]["engine"] == "spark"
    assert done.returncode == outcome(["scan", SAMPLE, "--format", "json"])
    assert (done.stdout.replace('"engine": "spark"', '"engine": "local"'), done.stderr) == capsys.readouterr()
