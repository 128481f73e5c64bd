"""The job that Spark runs, in a simulated session: the same answers as the local engine, and each of its steps."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from kafka_forensics import __version__
from kafka_forensics.errors import ForensicsError, UsageError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export import json_document
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.engine.serialization import pack
from kafka_forensics.scanning.engine.task_values import StretchRow, slices
from kafka_forensics.spark import job, keys
from tests.spark.fake_session import FakeFrame, FakeSession
from tests.support.brokers import put_copies, put_replica
from tests.support.places import SAMPLES
from tests.support.segments import log


def text(result: ScanResult) -> str:
    return "".join(json_document.document(result)).replace('"engine": "spark"', '"engine": "local"')


def scanned(paths: list[str], spark: FakeSession, **sizes: int) -> ScanResult:
    options = ScanOptions()
    return job.scan_inputs(spark, gather(paths, options), options, job.TaskSizes(**sizes))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sizes", [{}, {"split_bytes": 1000, "work_bytes": 3000, "slices_a_task": 2, "deferred_keys_bytes": 0, "small_bytes": -1}]
)
def test_spark_gives_the_answer_of_the_local_engine(sizes: dict[str, int]) -> None:
    paths = [str(path) for path in sorted((SAMPLES / "silent-divergence").iterdir())]
    spark = FakeSession()
    assert text(scanned(paths, spark, **sizes)) == text(local.scan(paths, ScanOptions()))
    assert spark.kept == 0


def test_a_scan_without_partitions_only_checks_the_workers(tmp_path: Path) -> None:
    (put_replica(tmp_path, 1, b"") / "orders-0").rename(tmp_path / "elsewhere")
    spark = FakeSession()
    assert scanned([str(tmp_path / "broker-1")], spark).partitions == []
    assert spark.made == 1, "the check of the workers"


@pytest.mark.parametrize(
    ("settings", "attempts"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[2]"}, 1),
        ({"spark.master": "local[*,7]"}, 7),
        ({"spark.master": "local[2, 3]"}, 3),
        ({"spark.master": "spark://host:7077"}, 4),
        ({"spark.master": "local-cluster[2,1,1024]"}, 4),
        ({"spark.master": "yarn", "spark.task.maxFailures": "9"}, 9),
        ({"spark.task.maxFailures": "many"}, 1),
        ({}, 4),
    ],
)
def test_the_number_of_attempts_is_that_of_the_master(settings: dict[str, str], attempts: int) -> None:
    assert keys.max_attempts(FakeSession(settings)) == attempts  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "attempts", "strict"), [(None, 4, False), (0, 1, False), (0, 2, True), (2, 4, True), (3, 4, False)]
)
def test_only_the_last_attempt_reports_errors_in_its_answer(
    monkeypatch: pytest.MonkeyPatch, number: int | None, attempts: int, strict: bool
) -> None:
    import pyspark

    class Context:
        @staticmethod
        def get() -> "Context | None":
            return None if number is None else Context()

        def attemptNumber(self) -> int | None:  # noqa: N802 - Spark's name
            return number

    monkeypatch.setattr(pyspark, "TaskContext", Context)
    assert keys.has_attempts_left(attempts) is strict


def test_workers_of_another_version_or_without_the_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_replica(tmp_path, 1, log(2))
    options = ScanOptions()
    inputs = gather([str(tmp_path / "broker-1")], options)
    job.probe(FakeSession(), inputs, options)  # type: ignore[arg-type]
    place = pa.record_batch({"name": ["logs", "more"], "place": [str(tmp_path / "gone"), str(tmp_path / "away")]})
    (answer,) = job._first_problem(__version__, pack(options), (), iter([place]))
    (problem,) = answer.column("problem").to_pylist()
    assert str(problem).startswith("a worker of Spark cannot read logs: ")
    (answer,) = job._first_problem("0.0.7", pack(options), (), iter([place]))
    assert answer.column("problem").to_pylist() == [f"Spark's workers have kafka-forensics {__version__}, and this is 0.0.7"]
    monkeypatch.setattr(job, "__version__", "0.0.8")
    monkeypatch.setattr(job, "_first_problem", lambda *_: iter([answer]))
    with pytest.raises(UsageError, match="and this is") as raised:
        job.probe(FakeSession(), inputs, options)  # type: ignore[arg-type]
    assert raised.value.hint == job._INSTALL


@pytest.mark.parametrize(
    ("exception_text", "raised", "sentence"),
    [
        ("No module named 'numpy'", UsageError, "Spark's workers have no module numpy: install "),
        ("disk full", ForensicsError, "Spark did not finish: disk full"),
    ],
)
def test_a_failure_of_the_check_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exception_text: str, raised: type[Exception], sentence: str
) -> None:
    put_replica(tmp_path, 1, log(2))
    inputs = gather([str(tmp_path / "broker-1")], ScanOptions())
    monkeypatch.setattr(FakeFrame, "toArrow", Mock(side_effect=PySparkException(exception_text)))
    with pytest.raises(raised, match=f"^{sentence}"):
        job.probe(FakeSession(), inputs, ScanOptions())  # type: ignore[arg-type]


def rows(count: int, size: int = 1) -> list[StretchRow]:
    return [StretchRow(number // 3, number % 3, 10 * number, 100 * number, bytes([number]) * size) for number in range(count)]


@pytest.mark.parametrize(
    ("most_rows", "most_bytes", "count", "size", "batches"),
    [(4, 100, 0, 1, []), (4, 100, 4, 1, [4]), (4, 100, 9, 1, [4, 4, 1]), (99, 30, 5, 10, [3, 2]), (99, 30, 4, 40, [1] * 4)],
)
def test_rows_travel_in_batches_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch, most_rows: int, most_bytes: int, count: int, size: int, batches: list[int]
) -> None:
    monkeypatch.setattr(job, "_ROWS_AT_ONCE", most_rows)
    monkeypatch.setattr(job, "_BYTES_AT_ONCE", most_bytes)
    record_batches = list(job._rows_as_batches(iter(rows(count, size))))
    assert [record_batch.num_rows for record_batch in record_batches] == batches
    assert list(job.state_rows(iter(record_batches))) == rows(count, size)
    assert all(
        [field.name for field in record_batch.schema] == ["slice", "replica", "segment", "start", "packed"]
        for record_batch in record_batches
    )


@pytest.mark.parametrize("answered", [[0, 1], [0, 1, 1, 2], [0, 1, 3]])
def test_a_missing_or_repeated_answer_is_an_error(answered: list[int]) -> None:
    spark: Any = FakeSession()
    slice_rows, state_rows = job.slice_rows(spark, range(3), [b""] * 3), job.slice_rows(spark, [], [])

    def judge(batches: Any) -> Any:
        if any(batch.num_rows for batch in batches):
            yield pa.record_batch(
                {"slice": pa.array(answered, pa.int64()), "packed": pa.array([b"x"] * len(answered), pa.binary())}
            )

    with pytest.raises(ForensicsError, match="once"):
        list(job.in_order(job.judge_with_states(slice_rows, state_rows, 1, judge), range(3)))


@pytest.mark.parametrize(
    ("replicas", "compacted", "least_bytes", "asks"),
    [(2, True, 0, True), (1, True, 0, False), (2, False, 0, False), (2, True, 1 << 40, False)],
)
def test_large_compacted_partitions_may_ask_keys(
    tmp_path: Path, replicas: int, compacted: bool, least_bytes: int, asks: bool
) -> None:
    for broker in range(1, replicas + 1):
        put_replica(tmp_path, broker, log(3))
    (part,) = slices(gather([str(tmp_path / f"broker-{broker}") for broker in range(1, replicas + 1)], ScanOptions()))
    for plan in part.replicas:
        plan.context.compacted = compacted
    deferred_keys_bytes = sum(plan.bytes for plan in part.replicas) if asks else least_bytes
    assert job._may_have_key_questions(part, job.TaskSizes(deferred_keys_bytes=deferred_keys_bytes)) is asks


@pytest.mark.parametrize(("work_bytes", "works"), [(None, 1), (1, 2), (1 << 40, 1)])
@pytest.mark.parametrize("deep", [False, True])
def test_small_logs_are_one_work_by_default(tmp_path: Path, deep: bool, work_bytes: int | None, works: int) -> None:
    put_copies(tmp_path, (1, 2), log(40))
    parts = list(enumerate(slices(gather([str(tmp_path / f"broker-{broker}") for broker in (1, 2)], ScanOptions()))))
    spark: Any = FakeSession()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "fold_on_worker", lambda *_: iter(()))
        _, works_count = job.fold_states(spark, b"", parts, job.TaskSizes(work_bytes=work_bytes), deep=deep)
    assert works_count == works
