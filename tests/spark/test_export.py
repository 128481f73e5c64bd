"""The export on Spark writes the rows of the local engine and no other files."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.export import tasks
from kafka_forensics.export.tasks import ExportArguments
from kafka_forensics.model.findings import worst_first
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.spark import export, export_job, job, read_export
from tests.export import exports
from tests.export.exports import manifest, read_back, rows
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, s3_server
from tests.support.places import SAMPLES

pytestmark = pytest.mark.spark

SAMPLE = SAMPLES / "unclean-election"


def nullable_schema(fact: str) -> pa.Schema:
    """The declared types of a fact as Spark gives them: every field of a list or struct is nullable."""
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in FACTS[fact].schema])


def _nullable(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.ListType):
        return pa.list_(_nullable(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(part.name, _nullable(part.type)) for part in kind])
    return kind


def assert_equal(by_spark: Path, local: Path) -> None:
    """Assert that rows of every fact, their counts, and the options in the manifest are equal."""
    written, expected = manifest(by_spark), manifest(local)
    assert written["tool"]["engine"] == "spark"
    assert (written["options"], written["schema_version"]) == (expected["options"], expected["schema_version"])
    assert written["incomplete"] == expected["incomplete"] == []
    assert list(written["datasets"]) == list(expected["datasets"])
    for fact in expected["datasets"]:
        assert rows(read_back(by_spark, fact)) == rows(read_back(local, fact)), fact
        assert written["datasets"][fact]["rows"] == expected["datasets"][fact]["rows"]


def test_an_export_equals_that_of_the_local_engine(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "spark"
    done = export(spark, str(SAMPLE), str(target), payloads=True)
    assert exports.export(tmp_path / "local", SAMPLE, "--show-payloads") == 0
    assert_equal(target, tmp_path / "local")
    content = manifest(target)
    assert {dataset.fact: dataset.rows for dataset in done.datasets} == {
        fact: sums["rows"] for fact, sums in content["datasets"].items()
    }
    paths = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert paths == {file["path"] for file in content["files"]} | {"_SUCCESS", "_manifest.json"}
    assert {path.name for path in target.iterdir()} == {*FACTS, "_SUCCESS", "_manifest.json"}
    for entry in content["files"]:
        data = (target / entry["path"]).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        file = pq.ParquetFile(target / entry["path"])
        metadata = file.schema_arrow.metadata or {}
        assert file.metadata.num_rows == entry["rows"]
        assert metadata[b"kf.schema_version"] == content["schema_version"].encode()
        if "topic" in entry:
            assert [metadata[f"kf.{key}".encode()].decode() for key in ("topic", "partition", "broker")] == [
                entry["topic"], str(entry["partition"]), entry["broker"],
            ]  # fmt: skip


def test_names_of_directories_are_read_as_text(spark: SparkSession, tmp_path: Path) -> None:
    sample = tmp_path / "copies" / "007"
    shutil.copytree(SAMPLE / "broker-1" / "orders-0", sample / "2024-01-01-0")
    assert exports.export(tmp_path / "out", f"007={sample}", "--fact", "records") == 0
    inferred = spark.read.parquet(str(tmp_path / "out" / "records"))
    assert {name: kind for name, kind in inferred.dtypes if name in ("topic", "broker")} == {"topic": "date", "broker": "int"}
    frame = read_export(spark, f"{tmp_path}/out/", "records")
    assert frame.columns == FACTS["records"].schema.names
    assert frame.dtypes[:3] == [("topic", "string"), ("partition", "int"), ("broker", "string")]
    wanted = kf.scan(f"007={sample}").facts("records").drop_columns(["key", "value", "headers", "node_id"])
    assert rows(frame.drop("key", "value", "headers", "node_id").toArrow()) == rows(wanted)
    assert frame.select("topic", "broker").distinct().collect() == [("2024-01-01", "7")]


@pytest.mark.nightly
@pytest.mark.parametrize("fact", FACTS)
def test_spark_reads_the_facts_of_the_scan(spark: SparkSession, tmp_path: Path, fact: str) -> None:
    assert exports.export(tmp_path / "out", SAMPLE, "--show-payloads", "--fact", fact) == 0
    read = read_export(spark, str(tmp_path / "out"), fact).toArrow()
    names = [name for name in FACTS[fact].schema.names if name != "node_id"]
    scanned = kf.scan(str(SAMPLE)).facts(fact, payloads=True)
    assert rows(read.cast(nullable_schema(fact)).select(names)) == rows(scanned.select(names))


@pytest.mark.nightly
def test_requested_facts_are_written_after_one_probe(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = []
    for module in (export_job, job):
        monkeypatch.setattr(module, "probe", lambda *_: probes.append("probe"))
    filters: dict[str, Any] = {"topic": "audit", "partition": 0, "broker": 2}
    done = export(spark, [str(SAMPLE)], str(tmp_path / "out"), ["findings", "batches"], **filters)
    content = manifest(tmp_path / "out")
    assert [dataset.fact for dataset in done.datasets] == list(content["datasets"]) == ["batches", "findings", "incomplete"]
    assert {(file["topic"], file["partition"], file["broker"]) for file in content["files"] if "topic" in file} == {
        ("audit", 0, "2")
    }
    assert probes == ["probe"]


@pytest.mark.parametrize(
    ("where", "at"), [("--spark-master", "spark://127.0.0.1:1"), ("--spark-remote", "sc://127.0.0.1:1")], ids=["master", "remote"]
)
def test_invalid_requests_are_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str, at: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    unreachable = ("--engine", "spark", where, at)
    for target, path, message in (
        ("out", "there-is-no-such-path", "error: there-is-no-such-path: no such file or directory\n"),
        ("full", SAMPLE, "it holds note"),
        ("out", SAMPLE, f"error: no Spark answers at {at} (127.0.0.1:1: connection refused)"),
    ):
        assert exports.export(tmp_path / target, path, *unreachable) == 2
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "note"]


@pytest.mark.nightly
def test_workers_that_do_not_see_the_target_are_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_directory(*arguments: Any, **options: Any) -> ExportArguments:
        shutil.rmtree(tmp_path / "lost" / "_temporary")
        return tasks.export_arguments(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(export_job, "export_arguments", remove_directory)
        with pytest.raises(UsageError, match="a worker of Spark: cannot write to"):
            export(spark, str(SAMPLE), str(tmp_path / "lost"), ["batches"])
    monkeypatch.setattr(export_job, "absolute_place", lambda output: f"{output}-elsewhere")
    with pytest.raises(UsageError, match=r"a worker of Spark: .*-elsewhere: No such file or directory") as caught:
        export(spark, str(SAMPLE), str(tmp_path / "out"))
    assert "shared storage" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_missing_log_is_retried_and_reported(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Path(shutil.copytree(SAMPLE, tmp_path / "copies"))
    missing = max(copies.glob("broker-1/*/*.log"), key=lambda path: path.stat().st_size)

    def remove_log(*arguments: Any) -> Any:
        answer = job.scan_probed(*arguments)
        missing.unlink()
        return answer

    monkeypatch.setattr(export_job, "scan_probed", remove_log)
    done = export(spark, str(copies), str(tmp_path / "out"), ["batches", "spans", "transactions"])
    assert {incomplete.path for incomplete in done.result.incomplete} == {str(missing)}
    assert {gap["path"] for gap in manifest(tmp_path / "out")["incomplete"]} == {str(missing)}
    spans = [span for span in read_back(tmp_path / "out", "spans").to_pylist() if span["kind"] == "skipped"]
    assert [(span["broker"], span["position"]) for span in spans] == [("1", 0)]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "_INCOMPLETE", "_manifest.json", "batches", "spans", "transactions", "incomplete",
    }  # fmt: skip


def test_object_storage_is_exported_to_object_storage(spark: SparkSession, tmp_path: Path) -> None:
    with s3_server() as server:
        server.client().create_bucket(Bucket="exports")
        server.upload(SAMPLES / "silent-divergence", "evidence", "tonight")
        storage = {"endpoint": server.endpoint, "region": "us-east-1", "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
        facts = ["batches", "findings"]
        export(spark, "s3://evidence/tonight", "s3://exports/out", facts, storage_options=storage)
        for item in server.client().list_objects_v2(Bucket="exports")["Contents"]:
            if not item["Key"].endswith("/"):
                path = tmp_path / item["Key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(server.client().get_object(Bucket="exports", Key=item["Key"])["Body"].read())
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"_SUCCESS", "_manifest.json", *facts, "incomplete"}
    result = kf.scan(str(SAMPLES / "silent-divergence"))
    read = read_back(tmp_path / "out", "batches").drop_columns(["log_dir"])
    assert rows(read) == rows(result.facts("batches").drop_columns(["log_dir"]))
    assert read_back(tmp_path / "out", "findings").column("kind").to_pylist() == [
        finding.kind for finding in worst_first(result.findings)
    ]
