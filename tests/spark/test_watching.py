"""The names, ends and errors of jobs, without Java."""

import gc
import io
import logging
import time
import weakref
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kafka_forensics.cli import progress
from kafka_forensics.cli.options import EngineOptions
from kafka_forensics.cli.spark_session import running_session
from kafka_forensics.cli.streams import Screen
from kafka_forensics.errors import DENIED, STILL_FAILING, ForensicsError, PathMissingError, SourceError, UsageError
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.scanning.engine.serialization import pack
from kafka_forensics.spark import data_source, export_job, job, sessions, watching
from kafka_forensics.spark.data_source import FactTask, KafkaLogDataSource
from kafka_forensics.spark.watching import RunningJob, Settings, Stages, Watch, collected
from kafka_forensics.storage.remote import RequestFailedError, StorageOptions, request_once, variables_here
from kafka_forensics.storage.remote.errors import source_error
from tests.spark.fake_session import FakeFrame, FakeSession
from tests.support.places import SAMPLES

pytestmark = pytest.mark.spark

TOO_LARGE = (
    "An error occurred while calling o83.getResult.\n: org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat x\n"
    "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results of 1 tasks"
    " (2030.0 B) is bigger than spark.driver.maxResultSize (1024.0 B)\n\tat x"
)


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (
            TOO_LARGE,
            ForensicsError,
            (
                "the answers of tasks (2030.0 B) exceed spark.driver.maxResultSize (1024.0 B):"
                " raise it, and spark.driver.memory to twice as much"
            ),
        ),
        (
            "ModuleNotFoundError: No module named 'kafka_forensics.spark'",
            UsageError,
            (
                "Spark's workers have no module kafka_forensics.spark: install the same kafka-forensics for their interpreter"
                " (PYSPARK_PYTHON)"
            ),
        ),
        (
            'java.io.IOException: Cannot run program "python9": error=2, No such file or directory',
            UsageError,
            "Spark's workers cannot run python9: set PYSPARK_PYTHON or spark.pyspark.python to a Python that every worker has",
        ),
        (
            "x\n  [PYTHON_VERSION_MISMATCH] 3.11 is not 3.12 \ny",
            UsageError,
            (
                "Spark's workers cannot do the work: [PYTHON_VERSION_MISMATCH] 3.11 is not 3.12:"
                " install the same kafka-forensics and Python there (PYSPARK_PYTHON)"
            ),
        ),
        ("AttributeError: Can't get attribute 'fold'", UsageError, "Spark's workers cannot do the work: AttributeError: "),
        ("RuntimeError: can't start new thread", ForensicsError, "Python on a worker of Spark has too little memory (can't start"),
        (
            "ImportError: libarrow.so: failed to map segment from shared object",
            ForensicsError,
            "Python on a worker of Spark has too",
        ),
        (
            "Caused by: java.net.SocketException: Connection reset",
            ForensicsError,
            "Python on a worker of Spark ended during a task",
        ),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", ForensicsError, "Python on a worker of"),
        (
            "java.lang.OutOfMemoryError: Java heap space",
            ForensicsError,
            "Java has too little memory for Spark (OutOfMemoryError: J",
        ),
    ],
)
def test_a_failure_that_a_setting_cures_is_one_sentence(text: str, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind) as caught, sessions.readable_spark_errors():
        raise Py4JError(text)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_words_of_our_own_errors_are_no_failures_of_spark() -> None:
    text = "kafka_forensics.errors.SourceError: s3://b/x: still failing; java.net.SocketException: Connection reset"
    assert sessions.known_error(text) is None
    assert sessions.known_error("[Errno 104] Connection reset by peer") is None, "Java on the driver ended"


def test_jobs_have_names_and_the_users_return() -> None:
    spark: Any = FakeSession(properties={"spark.job.description": "mine"})
    frame: Any = FakeFrame(spark, pa.table({}))
    collected(frame, "fold logs")
    assert spark.jobs == ["kafka-forensics: fold logs"]
    assert spark.properties == {"spark.job.description": "mine"}
    assert spark.tags == set()


def test_a_cancelled_job_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.005)
    spark: Any = FakeSession({watching.LIMIT_SETTING: "0.02", "spark.executor.memory": "30g"}, stages=[(0, 0)])

    def wait(_: object) -> None:
        assert spark.cancelled.wait(20)
        raise PySparkException("Job 1 cancelled")

    monkeypatch.setattr(FakeFrame, "toArrow", wait)
    frame: Any = FakeFrame(spark, pa.table({}))
    with pytest.raises(ForensicsError) as caught:
        collected(frame, "check the workers")
    text = str(caught.value)
    assert text.startswith(
        "no executor has worked on the job (check the workers) for 0 seconds: a worker must have memory and cores"
    )
    assert "(spark.executor.memory 30g)" in text
    assert text.endswith("spark.kafka_forensics.executorTimeout 0.02 seconds are over")


def watched(seen: "list[Stages | None]", limit: float = 0.0, *, at_most: float = 0.3) -> tuple[Watch, list[str]]:
    """A watch that has seen these stages, one after the other and the last for ever, for `at_most` seconds; how it cancelled."""
    cancelled: list[str] = []
    left = list(seen)
    job_of_test = RunningJob(lambda: left.pop(0) if len(left) > 1 else left[0], lambda: cancelled.append("cancelled"))
    watch = Watch("fold logs", Settings(limit, "spark.executor.memory 1g"), job_of_test)
    with watch.during():
        deadline = time.monotonic() + at_most
        while not cancelled and time.monotonic() < deadline:
            time.sleep(0.005)
    return watch, cancelled


def test_only_a_job_without_an_executor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.005)
    assert watched([Stages(0, 0)], 0.03, at_most=10)[1] == ["cancelled"]
    assert watched([Stages(2, 0), Stages(0, 3)], 0.03, at_most=10)[1] == ["cancelled"], "the executors were lost"
    for seen, limit in ((None, 0.03), (Stages(1, 0), 0.03), (Stages(0, 0), 0.0)):
        watch, cancelled = watched([seen], limit)
        assert (watch.reason, cancelled) == (None, [])


def test_waiting_is_reported_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(watching, "WARN_SECONDS", 0.02)
    watched([Stages(0, 0)])
    assert [record.getMessage()[:47] for record in caplog.records] == ["no executor has worked on the job (fold logs) f"]


def test_a_job_that_ends_is_logged_with_its_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka_forensics.spark")
    frame: Any = FakeFrame(cast("Any", FakeSession()), pa.table({}))
    collected(frame, "fold logs")
    assert [record.getMessage() for record in caplog.records] == ["Spark's job (fold logs) took 0.0 s"]


@pytest.mark.parametrize("method", ["getLocalProperty", "statusTracker", "addJobTag"])
def test_a_job_runs_unwatched_where_a_policy_forbids_to_watch_it(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(FakeSession, method, Mock(side_effect=Py4JError(f"Method {method} is not whitelisted")))
    spark: Any = FakeSession(properties={"spark.job.description": "mine"})
    frame: Any = FakeFrame(spark, pa.table({"row": [1]}))
    assert collected(frame, "fold logs").num_rows == 1
    assert spark.properties == {"spark.job.description": "mine"}
    monkeypatch.setattr(FakeFrame, "toArrow", Mock(side_effect=Py4JError("the job failed")))
    with pytest.raises(ForensicsError, match="the job failed"):
        collected(frame, "fold logs")


def test_a_note_is_logged_once_a_session(caplog: pytest.LogCaptureFixture) -> None:
    first, second = cast("Any", FakeSession()), cast("Any", FakeSession())
    for spark in (first, first, second):
        with sessions.notes_once(spark):
            logging.getLogger("kafka_forensics.evidence.paths").warning("%s: read once", "a")
        sessions.warn_once(spark, "the client is newer")
    logging.getLogger("kafka_forensics.evidence.paths").warning("%s: read once", "a")
    assert [record.getMessage() for record in caplog.records].count("a: read once") == 3
    assert [record.getMessage() for record in caplog.records].count("the client is newer") == 2
    gone = weakref.ref(first)
    del first, second, spark
    gc.collect()
    assert gone() is None, "notes keep no session"


AT_AMAZON = "no endpoint is set (AWS_ENDPOINT_URL_S3, or the storage option endpoint), so the request went to Amazon"
LACKS = (
    "the environment of this worker lacks AWS_ENDPOINT_URL_S3, which the driver has: set spark.executorEnv.AWS_ENDPOINT_URL_S3,"
    " or give the value as a storage option"
)


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        (f"{STILL_FAILING} after 4 attempts; {AT_AMAZON}: Could not resolve host", LACKS),
        (f"{DENIED}; response of the service: 403", f"{DENIED}; response of the service: 403; {LACKS}"),
        ("no such object", "no such object"),
    ],
)
def test_a_worker_names_the_setting_that_did_not_reach_it(monkeypatch: pytest.MonkeyPatch, reason: str, wanted: str) -> None:
    for name in variables_here():
        monkeypatch.delenv(name)
    place = pa.record_batch({"name": ["s3://b/x"], "place": ["s3://b/x"]})
    lost = Mock(side_effect=SourceError("s3://b/x", reason))
    monkeypatch.setattr(job, "open_address", lost)
    monkeypatch.setattr(data_source, "read_task", lost)
    monkeypatch.setattr(export_job, "target_problem", lambda _: f"cannot write to s3://b/out: {reason}")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    driver = variables_here()
    source = KafkaLogDataSource({"path": str(SAMPLES / "healthy")})
    reader = source.reader(source.schema())
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    (answer,) = job._first_problem(job.__version__, pack(ScanOptions()), driver, iter([place]))
    assert str(answer.column("problem")[0]).startswith("a worker of Spark cannot read s3://b/x: ")
    assert str(answer.column("problem")[0]).endswith(wanted)
    with pytest.raises(SourceError) as caught:
        list(reader.read(FactTask("{}")))
    assert caught.value.reason == wanted
    (answer,) = export_job._target_problems("", driver, iter([pa.record_batch({"number": [1]})]))
    assert str(answer.column("problem")[0]) == f"cannot write to s3://b/out: {wanted}"


def test_a_command_shows_the_tasks_of_a_connect_server(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Any] = []
    server = SimpleNamespace(registerProgressHandler=handlers.append, stop=lambda: None)
    monkeypatch.setattr("kafka_forensics.spark.session", lambda **_: server)
    monkeypatch.setattr(progress, "LINE_EVERY_SECONDS", 0.0)
    stream = io.StringIO()
    options = EngineOptions(engine="spark", spark_remote="sc://host")
    with running_session(Screen(stream, 80, colour=False), options, 1):
        handlers[0](stages=[SimpleNamespace(num_completed_tasks=3, num_tasks=64)], inflight_tasks=2, operation_id=None, done=False)
    assert stream.getvalue().startswith("3 of 64 tasks are done")


def test_errors_of_uris_say_nothing_of_relative_paths() -> None:
    error = PathMissingError("s3://b/x: no such object or directory")
    assert data_source._with_working_directory(error, ["s3://b/x", "1=s3://b/y"]) is error
    assert "relative paths start at" in str(data_source._with_working_directory(error, ["x"]).hint)


def test_a_store_without_an_endpoint_says_that_the_request_went_to_amazon() -> None:
    text = "AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 6, Could not resolve hostname"
    for endpoint, is_without in ((None, True), ("127.0.0.1:1", False)):
        with pytest.raises(RequestFailedError) as caught:
            request_once(Mock(side_effect=OSError(text)), StorageOptions(endpoint=endpoint))
        reason = source_error("s3://b/x", caught.value.failure).reason
        assert reason.startswith(STILL_FAILING)
        assert (AT_AMAZON in reason) is is_without
        assert ("try again later" in reason) is not is_without


def test_too_little_memory_for_the_data_source_is_one_sentence() -> None:
    with pytest.raises(ForensicsError) as caught, data_source.readable_errors():
        raise pa.ArrowMemoryError("realloc of size 17152 failed")
    assert str(caught.value).startswith(
        "Spark's Python has too little memory (realloc of size 17152 failed): raise spark.executor."
    )
