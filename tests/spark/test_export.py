"""The export on Spark writes what the local engine writes, fact by fact, and leaves nothing else behind."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.export import tasks
from kafka_forensics.export.tasks import ExportArguments
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark import export, export_job, job, read_export
from tests.export import exports
from tests.export.exports import manifest, read_back, rows
from tests.spark.parquet_readers import plain
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, s3_server
from tests.support.places import SAMPLES

pytestmark = pytest.mark.spark

SAMPLE = SAMPLES / "unclean-election"


def assert_equal(there: Path, here: Path) -> None:
    """The same rows of every fact, the same sums of them, and the same options in the manifest."""
    told, expected = manifest(there), manifest(here)
    assert told["tool"]["engine"] == "spark"
    assert (told["options"], told["schema_version"]) == (expected["options"], expected["schema_version"])
    assert told["incomplete"] == expected["incomplete"] == []
    assert list(told["datasets"]) == list(expected["datasets"])
    for fact in expected["datasets"]:
        assert rows(read_back(there, fact)) == rows(read_back(here, fact)), fact
        assert told["datasets"][fact]["rows"] == expected["datasets"][fact]["rows"]


def test_an_export_is_that_of_the_local_engine_as_its_manifest_says(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "there"
    done = export(spark, str(SAMPLE), str(target), payloads=True)
    assert exports.export(tmp_path / "here", SAMPLE, "--show-payloads") == 0
    assert_equal(target, tmp_path / "here")
    told = manifest(target)
    assert {dataset.fact: dataset.rows for dataset in done.datasets} == {
        fact: sums["rows"] for fact, sums in told["datasets"].items()
    }
    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert found == {one["path"] for one in told["files"]} | {"_SUCCESS", "_manifest.json"}
    assert {path.name for path in target.iterdir()} == {*FACTS, "_SUCCESS", "_manifest.json"}
    for one in told["files"]:
        data = (target / one["path"]).read_bytes()
        assert (one["bytes"], one["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        file = pq.ParquetFile(target / one["path"])
        metadata = file.schema_arrow.metadata or {}
        assert file.metadata.num_rows == one["rows"]
        assert metadata[b"kf.schema_version"] == told["schema_version"].encode()
        if "topic" in one:
            assert [metadata[f"kf.{key}".encode()].decode() for key in ("topic", "partition", "broker")] == [
                one["topic"], str(one["partition"]), one["broker"],
            ]  # fmt: skip


def test_what_names_of_directories_look_like_is_no_matter(spark: SparkSession, tmp_path: Path) -> None:
    sample = tmp_path / "copies" / "007"
    shutil.copytree(SAMPLE / "broker-1" / "orders-0", sample / "2024-01-01-0")
    assert exports.export(tmp_path / "out", f"007={sample}", "--fact", "records") == 0
    guessed = spark.read.parquet(str(tmp_path / "out" / "records"))
    assert {name: kind for name, kind in guessed.dtypes if name in ("topic", "broker")} == {"topic": "date", "broker": "int"}
    frame = read_export(spark, f"{tmp_path}/out/", "records")
    assert frame.columns == FACTS["records"].schema.names
    assert frame.dtypes[:3] == [("topic", "string"), ("partition", "int"), ("broker", "string")]
    wanted = kf.scan(f"007={sample}").facts("records").drop_columns(["key", "value", "headers"])
    assert rows(frame.drop("key", "value", "headers").toArrow()) == rows(wanted)
    assert frame.select("topic", "broker").distinct().collect() == [("2024-01-01", "7")]


@pytest.mark.nightly
@pytest.mark.parametrize("fact", FACTS)
def test_spark_reads_the_facts_of_the_scan(spark: SparkSession, tmp_path: Path, fact: str) -> None:
    assert exports.export(tmp_path / "out", SAMPLE, "--show-payloads", "--fact", fact) == 0
    read = read_export(spark, str(tmp_path / "out"), fact).toArrow()
    assert rows(read.cast(plain(fact))) == rows(kf.scan(str(SAMPLE)).facts(fact))


@pytest.mark.nightly
def test_only_what_is_asked_for_after_one_probe(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = []
    for module in (export_job, job):
        monkeypatch.setattr(module, "probe", lambda *_: probes.append("probe"))
    asked: dict[str, Any] = {"topic": "audit", "partition": 0, "broker": 2}
    done = export(spark, [str(SAMPLE)], str(tmp_path / "out"), ["findings", "batches"], **asked)
    told = manifest(tmp_path / "out")
    assert [dataset.fact for dataset in done.datasets] == list(told["datasets"]) == ["batches", "findings", "incomplete"]
    assert {(one["topic"], one["partition"], one["broker"]) for one in told["files"] if "topic" in one} == {("audit", 0, "2")}
    assert probes == ["probe"]


@pytest.mark.parametrize(
    ("where", "at"), [("--spark-master", "spark://127.0.0.1:1"), ("--spark-remote", "sc://127.0.0.1:1")], ids=["master", "remote"]
)
def test_what_cannot_be_ends_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str, at: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    nobody = ("--engine", "spark", where, at)
    for target, path, words in (
        ("out", "there-is-no-such-path", "error: there-is-no-such-path: no such file or directory\n"),
        ("full", SAMPLE, "it holds note"),
        ("out", SAMPLE, f"error: no Spark answers at {at} (127.0.0.1:1: connection refused)"),
    ):
        assert exports.export(tmp_path / target, path, *nobody) == 2
        assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "note"]


@pytest.mark.nightly
def test_workers_that_do_not_see_the_target(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def removed(*arguments: Any, **named: Any) -> ExportArguments:
        shutil.rmtree(tmp_path / "lost" / "_temporary")
        return tasks.export_arguments(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(export_job, "export_arguments", removed)
        with pytest.raises(UsageError, match="a worker of Spark: cannot write to"):
            export(spark, str(SAMPLE), str(tmp_path / "lost"), ["batches"])
    monkeypatch.setattr(export_job, "absolute_place", lambda output: f"{output}-elsewhere")
    with pytest.raises(UsageError, match=r"a worker of Spark: .*-elsewhere: No such file or directory") as caught:
        export(spark, str(SAMPLE), str(tmp_path / "out"))
    assert "shared storage" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_missing_log_is_tried_again_and_reported(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Path(shutil.copytree(SAMPLE, tmp_path / "copies"))
    gone = max(copies.glob("broker-1/*/*.log"), key=lambda path: path.stat().st_size)

    def removed(*given: Any) -> Any:
        answer = job.scan_probed(*given)
        gone.unlink()
        return answer

    monkeypatch.setattr(export_job, "scan_probed", removed)
    done = export(spark, str(copies), str(tmp_path / "out"), ["batches", "spans", "transactions"])
    assert {incomplete.path for incomplete in done.result.incomplete} == {str(gone)}
    assert {one["path"] for one in manifest(tmp_path / "out")["incomplete"]} == {str(gone)}
    spans = [one for one in read_back(tmp_path / "out", "spans").to_pylist() if one["kind"] == "skipped"]
    assert [(span["broker"], span["position"]) for span in spans] == [("1", 0)]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "_INCOMPLETE", "_manifest.json", "batches", "spans", "transactions", "incomplete",
    }  # fmt: skip


def test_from_a_storage_service_to_one(spark: SparkSession, tmp_path: Path) -> None:
    with s3_server() as server:
        server.client().create_bucket(Bucket="exports")
        server.upload(SAMPLES / "silent-divergence", "evidence", "tonight")
        storage = {"endpoint": server.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
        facts = ["batches", "findings"]
        export(spark, "s3://evidence/tonight", "s3://exports/out", facts, storage_options=storage)
        for one in server.client().list_objects_v2(Bucket="exports")["Contents"]:
            if not one["Key"].endswith("/"):
                path = tmp_path / one["Key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(server.client().get_object(Bucket="exports", Key=one["Key"])["Body"].read())
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"_SUCCESS", "_manifest.json", *facts, "incomplete"}
    here = kf.scan(str(SAMPLES / "silent-divergence"))
    read = read_back(tmp_path / "out", "batches").drop_columns(["log_dir"])
    assert rows(read) == rows(here.facts("batches").drop_columns(["log_dir"]))
    assert read_back(tmp_path / "out", "findings").column("kind").to_pylist() == [finding.kind for finding in here.findings]
