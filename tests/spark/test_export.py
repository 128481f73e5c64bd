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
from kafka_forensics.export.tasks import ExportCommon
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark import export, export_job, job, read_export
from tests.support import exports
from tests.support.exports import SAMPLES, manifest, read_back, rows
from tests.support.nightly import nightly_but
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, s3_server
from tests.support.parquet_readers import READERS, plain

pytestmark = pytest.mark.spark


def assert_equal(there: Path, here: Path) -> None:
    """The same rows of every fact, the same sums of them, and the same options in the manifest."""
    told, expected = manifest(there), manifest(here)
    assert told["tool"]["engine"] == "spark"
    assert (told["options"], told["schema_version"]) == (expected["options"], expected["schema_version"])
    assert {(one["path"], one["reason"]) for one in told["incomplete"]} == {
        (one["path"], one["reason"]) for one in expected["incomplete"]
    }
    assert list(told["datasets"]) == list(expected["datasets"])
    for fact in expected["datasets"]:
        assert rows(read_back(there, fact)) == rows(read_back(here, fact)), fact
        assert told["datasets"][fact]["rows"] == expected["datasets"][fact]["rows"]


@pytest.mark.parametrize("sample", nightly_but(["unclean-election"], ["healthy", "silent-divergence", "unclean-election"]))
def test_a_sample_is_exported_as_by_the_local_engine(spark: SparkSession, tmp_path: Path, sample: str) -> None:
    done = export(spark, str(SAMPLES / sample), str(tmp_path / "there"), payloads=True)
    assert exports.export(tmp_path / "here", SAMPLES / sample, "--show-payloads") == 0
    assert_equal(tmp_path / "there", tmp_path / "here")
    assert {dataset.fact: dataset.rows for dataset in done.datasets} == {
        fact: sums["rows"] for fact, sums in manifest(tmp_path / "here")["datasets"].items()
    }
    assert done.result.incomplete == []


@pytest.mark.nightly
@pytest.mark.corpora
def test_an_archive_is_exported_as_by_the_local_engine(spark: SparkSession, tmp_path: Path, corpora: Path) -> None:
    archive = corpora / "kafka-4.3.0-unclean.tar.xz"
    export(spark, str(archive), str(tmp_path / "there"))
    assert exports.export(tmp_path / "here", archive) == 0
    assert_equal(tmp_path / "there", tmp_path / "here")


def test_what_lies_there_is_what_the_manifest_says(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(spark, str(SAMPLES / "unclean-election"), str(target))
    told = manifest(target)
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


@pytest.fixture(scope="module")
def exported(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of everything about a sample, payloads included."""
    target = tmp_path_factory.mktemp("exports") / "all"
    export(spark, str(SAMPLES / "unclean-election"), str(target), payloads=True)
    return target


@pytest.fixture(scope="module")
def result() -> ScanResult:
    """The local engine's answer about it."""
    return kf.scan(str(SAMPLES / "unclean-election"))


@pytest.mark.nightly
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("fact", FACTS)
def test_readers_read_the_facts_of_the_scan(exported: Path, result: ScanResult, fact: str, reader: str) -> None:
    assert rows(READERS[reader](exported, fact)) == rows(result.facts(fact))


@pytest.mark.parametrize("fact", nightly_but(["batches"], FACTS))
def test_spark_reads_the_facts_of_the_scan(spark: SparkSession, exported: Path, result: ScanResult, fact: str) -> None:
    frame = spark.read.parquet(str(exported / fact))
    assert set(frame.columns) == set(FACTS[fact].schema.names)
    wanted = [f"CAST({name} AS STRING) AS {name}" if name in ("topic", "broker") else name for name in FACTS[fact].schema.names]
    assert rows(frame.selectExpr(*wanted).toArrow().cast(plain(fact))) == rows(result.facts(fact))


@pytest.mark.nightly
def test_what_names_of_directories_look_like_is_no_matter(spark: SparkSession, tmp_path: Path) -> None:
    sample = tmp_path / "copies" / "007"
    shutil.copytree(SAMPLES / "unclean-election" / "broker-1" / "orders-0", sample / "2024-01-01-0")
    assert exports.export(tmp_path / "out", f"007={sample}", "--fact", "records", "--fact", "findings") == 0
    guessed = spark.read.parquet(str(tmp_path / "out" / "records"))
    assert {name: kind for name, kind in guessed.dtypes if name in ("topic", "broker")} == {"topic": "date", "broker": "int"}
    frame = read_export(spark, f"{tmp_path}/out/", "records")
    assert frame.columns == FACTS["records"].schema.names
    assert frame.dtypes[:3] == [("topic", "string"), ("partition", "int"), ("broker", "string")]
    wanted = kf.scan(f"007={sample}").facts("records").drop_columns(["key", "value", "headers"])
    assert rows(frame.drop("key", "value", "headers").toArrow()) == rows(wanted)
    assert frame.select("topic", "broker").distinct().collect() == [("2024-01-01", "7")]
    assert read_export(spark, str(tmp_path / "out"), "findings").count() == len(kf.scan(f"007={sample}").findings)


@pytest.mark.nightly
def test_only_what_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"topic": "audit", "partition": 0, "broker": 2}
    done = export(spark, [str(SAMPLES / "unclean-election")], str(tmp_path / "out"), ["findings", "batches"], **asked)
    told = manifest(tmp_path / "out")
    assert [dataset.fact for dataset in done.datasets] == list(told["datasets"]) == ["batches", "findings", "incomplete"]
    assert {(one["topic"], one["partition"], one["broker"]) for one in told["files"] if "topic" in one} == {("audit", 0, "2")}
    with pytest.raises(UsageError, match="there is no fact 'batchs'"):
        export(spark, str(SAMPLES / "unclean-election"), str(tmp_path / "more"), ["batchs"])
    assert not (tmp_path / "more").exists()


@pytest.mark.nightly
def test_what_holds_something_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "note").write_text("mine")
    with pytest.raises(UsageError, match="it holds note"):
        export(spark, str(SAMPLES / "healthy"), str(tmp_path / "out"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["note"]
    with pytest.raises(UsageError, match="evidence is never written to"):
        export(spark, str(tmp_path), str(tmp_path / "out" / "deeper"))


def test_paths_and_target_are_refused_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    nobody = ("--engine", "spark", "--spark-master", "spark://127.0.0.1:1")
    assert exports.export(tmp_path / "out", "there-is-no-such-path", *nobody) == 2
    assert capsys.readouterr().err == "error: there-is-no-such-path: no such file or directory\n"
    assert exports.export(tmp_path / "full", SAMPLES / "healthy", *nobody) == 2
    assert "it holds note" in capsys.readouterr().err
    assert exports.export(tmp_path / "out", SAMPLES / "healthy", *nobody) == 2
    assert "no Spark answers at spark://127.0.0.1:1" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


@pytest.mark.nightly
def test_workers_are_asked_once_whether_they_can_do_the_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    for module in (export_job, job):
        monkeypatch.setattr(module, "probe", lambda *_: asked.append("probe"))
    export(spark, str(SAMPLES / "healthy"), str(tmp_path / "out"), ["findings"])
    assert asked == ["probe"]


@pytest.mark.nightly
def test_workers_that_do_not_see_the_target(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_job, "absolute", lambda output: f"{output}-elsewhere")
    with pytest.raises(UsageError, match=r"a worker of Spark: .*-elsewhere: No such file or directory") as caught:
        export(spark, str(SAMPLES / "healthy"), str(tmp_path / "out"))
    assert "shared storage" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_workers_that_lose_the_target_in_the_middle(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def removed(*given: Any, **named: Any) -> ExportCommon:
        shutil.rmtree(tmp_path / "out" / "_temporary")
        return tasks.common(*given, **named)

    monkeypatch.setattr(export_job, "common", removed)
    with pytest.raises(UsageError, match="a worker of Spark: cannot write to"):
        export(spark, str(SAMPLES / "healthy"), str(tmp_path / "out"), ["batches"])


@pytest.mark.nightly
def test_a_log_that_is_gone_is_tried_again_and_then_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = Path(shutil.copytree(SAMPLES / "unclean-election", tmp_path / "copies"))
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


def test_a_storage_service_as_the_target(spark: SparkSession, tmp_path: Path) -> None:
    with s3_server() as server:
        server.client().create_bucket(Bucket="exports")
        storage = {"endpoint": server.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
        export(spark, str(SAMPLES / "healthy"), "s3://exports/out", ["batches", "findings"], storage_options=storage)
        for one in server.client().list_objects_v2(Bucket="exports")["Contents"]:
            if not one["Key"].endswith("/"):
                path = tmp_path / one["Key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(server.client().get_object(Bucket="exports", Key=one["Key"])["Body"].read())
    there = tmp_path / "out"
    assert {path.name for path in there.iterdir()} == {"_SUCCESS", "_manifest.json", "batches", "findings", "incomplete"}
    assert exports.export(tmp_path / "here", SAMPLES / "healthy", "--fact", "batches", "--fact", "findings") == 0
    for fact in ("batches", "findings"):
        assert rows(read_back(there, fact)) == rows(read_back(tmp_path / "here", fact))
