"""Wrong Spark addresses and failures of Spark give one short error."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import STILL_FAILING, TRY_AGAIN, ForensicsError, TransientError, UsageError
from kafka_forensics.evidence.inputs import Inputs
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.spark import default_builder, export_job, job, session, sessions
from kafka_forensics.spark.job import probe
from kafka_forensics.spark.sessions import (
    newer_than_server,
    readable_spark_errors,
    require_server_of_client,
    without_url_parameters,
)
from tests.spark.fake_session import FakeSession
from tests.support.object_stores import free_port
from tests.support.places import SAMPLES

pytestmark = pytest.mark.spark

SAMPLE = str(SAMPLES / "healthy")


@contextlib.contextmanager
def connect_server(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that passes each connection to `handle`; connections stay open unless `handle` closes them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connections.append(server.accept()[0])
                    handle(connections[-1])

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"sc://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


def _answer_http(connection: socket.socket) -> None:
    connection.recv(16)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("handle", [socket.socket.close, lambda _: None, _answer_http], ids=["closes", "is silent", "HTTP/1.1"])
def test_a_server_that_is_not_spark_connect_is_reported_in_time(
    handle: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sessions, "CONNECT_SECONDS", 0.5)
    with connect_server(handle) as url:
        start = time.monotonic()
        with pytest.raises(ForensicsError, match=rf"^{url} accepts connections, but did not answer .* within 0\.5 seconds"):
            session(remote=f"{url}/;user_id=x;token=SECRET")
        assert outcome(["scan", SAMPLE, "--engine", "spark", "--spark-remote", f"{url}/;user_id=x;token=SECRET"]) == 3
        assert time.monotonic() - start < 120  # PySpark alone retries for minutes
    err = capfd.readouterr().err  # gRPC may have been loaded before the command could quiet it
    assert err.splitlines()[-1].startswith(f"error: {url} accepts connections")
    assert "SECRET" not in err


def test_one_of_several_masters_must_answer() -> None:
    port = free_port()
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:\d+: connection refused; 127\.0\.0\.1:\d+: connection refused"):
        default_builder(f"spark://127.0.0.1:{port},127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert default_builder(f"spark://127.0.0.1:{port},127.0.0.1:{server.getsockname()[1]}") is not None


def test_invalid_masters_are_refused_before_java_starts() -> None:
    for master in ("bogus", "bogus://x", "local[x]", "local[2", "spark://", ""):
        with pytest.raises(UsageError, match="there is no Spark master"):
            default_builder(master)
    for master in ("local", "local[*]", "local[*, 4]", "local-cluster[2,1,1024]", "yarn", "k8s://https://h:1"):
        assert default_builder(master) is not None


def test_a_token_is_not_shown() -> None:
    assert (
        without_url_parameters("sc://127.0.0.1:1/;user_id=x;token=SECRET")
        == without_url_parameters("sc://127.0.0.1:1;token=SECRET")
        == "sc://127.0.0.1:1"
    )
    assert without_url_parameters("local[2,4]") == "local[2,4]"


def test_a_failure_has_the_message_of_its_cause() -> None:
    stack = "An error occurred\njava.lang.A: outer\n\tat x\nCaused by: java.io.IOException: no space\n\tat y"
    with pytest.raises(ForensicsError, match=r"^Spark did not finish: java\.io\.IOException: no space$"), readable_spark_errors():
        raise Py4JError(stack)
    with (
        pytest.raises(
            UsageError,
            match=r"^Spark does not start at sc://h:1: x sc://h:1\nhint: `kafka-forensics doctor` checks Java and Spark$",
        ),
        readable_spark_errors("sc://h:1/;token=SECRET"),
    ):
        raise Py4JError("x sc://h:1/;token=SECRET")


class ConnectSession:
    """A session of a Connect server with only its version."""

    def __init__(self, version: str) -> None:
        self.version = version


ConnectSession.__module__ = "pyspark.sql.connect.session"


VERSIONS = [("4.0.1", True), ("4.2.9", True), ("4.3.0", False), ("4.3.7", False), ("4.10.0", False)]


@pytest.mark.parametrize(("server", "is_older"), VERSIONS)
def test_a_client_newer_than_its_server_is_refused_with_both_versions(
    server: str, is_older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scans of a real 4.3.0 client fail on a 4.0.1 server, which lacks a setting."""
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    spark: Any = ConnectSession(server)
    sentence = f"this client has Spark 4.3.0, and the Connect server has Spark {server}: a client must not be newer than the server"
    assert newer_than_server(spark) == (sentence if is_older else None)
    if not is_older:
        require_server_of_client(spark)
        return
    with pytest.raises(UsageError) as caught:
        probe(spark, Inputs(), ScanOptions())
    assert (str(caught.value), caught.value.hint) == (sentence, f"pip install 'pyspark=={server}' here, or run a newer Spark there")


def test_a_full_disk_of_spark_is_reported_with_its_worker() -> None:
    lost = "Lost task 0.3 in stage 1.0 (TID 7) (host-3 executor 1): java.io.IOException: No space left on device\n\tat x"
    plain = "java.io.IOException: No space left on device"
    for text, where in ((lost, "on the worker host-3"), (plain, "on the driver or a worker")):
        with pytest.raises(ForensicsError) as caught, readable_spark_errors():
            raise Py4JError(text)
        assert str(caught.value).endswith(
            f"; the disk of Spark's local directories is full {where} (spark.local.dir or SPARK_LOCAL_DIRS, /tmp unless set)"
        )


def test_transient_worker_error_is_not_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = f"cannot write to s3://bucket/out: {STILL_FAILING}; try again later; response of the service: Slow Down"
    for problem, kind in ((busy, TransientError), ("cannot write to s3://bucket/out: Access Denied", UsageError)):
        with pytest.raises(kind, match=r"^a worker of Spark: cannot write to s3://bucket/out: "):
            export_job._require_none([problem])

    batch = pa.record_batch({"problem": [f"a worker of Spark cannot read s3://bucket/x: s3://bucket/x: {STILL_FAILING} after 4"]})
    monkeypatch.setattr(job, "_first_problem", lambda *_: iter([batch]))
    with pytest.raises(TransientError, match=r"^a worker of Spark cannot read s3://bucket/x: ") as caught:
        probe(cast("Any", FakeSession()), Inputs(), ScanOptions())
    assert caught.value.hint == TRY_AGAIN
