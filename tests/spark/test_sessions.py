"""Where Spark is said to be: nothing there is told at once, in one sentence."""

import socket

import pytest
from py4j.protocol import Py4JError

from kafka_forensics.errors import ForensicsError, UsageError
from kafka_forensics.spark import default_builder, session
from kafka_forensics.spark.sessions import failures_told, shown

pytestmark = pytest.mark.spark


@pytest.fixture
def port() -> int:
    """One that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_connect_server_that_is_not_there_is_told_at_once(port: int) -> None:
    with pytest.raises(
        UsageError, match=rf"no Spark answers at sc://127\.0\.0\.1:{port} \(127\.0\.0\.1:{port}: connection refused\)"
    ):
        session(remote=f"sc://127.0.0.1:{port}/;user_id=x")


def test_of_several_masters_one_must_be_there(port: int) -> None:
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:\d+: connection refused; 127\.0\.0\.1:\d+: connection refused"):
        default_builder(f"spark://127.0.0.1:{port},127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert default_builder(f"spark://127.0.0.1:{port},127.0.0.1:{server.getsockname()[1]}") is not None


@pytest.mark.parametrize("master", ["bogus", "bogus://x", "local[x]", "local[2", "spark://", ""])
def test_what_is_no_master_is_told_before_java_starts(master: str) -> None:
    with pytest.raises(UsageError, match="there is no Spark master"):
        default_builder(master)


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[2,4]", "local[*, 4]", "local-cluster[2,1,1024]", "yarn", "k8s://https://h:1"]
)
def test_masters_are_known(master: str) -> None:
    assert default_builder(master) is not None


def test_a_token_is_not_shown() -> None:
    assert shown("sc://127.0.0.1:1/;user_id=x;token=SECRET") == shown("sc://127.0.0.1:1;token=SECRET") == "sc://127.0.0.1:1"
    assert shown("local[2,4]") == "local[2,4]"


def test_failures_are_told_by_their_cause() -> None:
    stack = "An error occurred\njava.lang.A: outer\n\tat x\nCaused by: java.io.IOException: no space\n\tat y"
    with pytest.raises(ForensicsError, match=r"^Spark did not finish: java\.io\.IOException: no space$"), failures_told():
        raise Py4JError(stack)
    with (
        pytest.raises(UsageError, match=r"^Spark does not start at sc://h:1: x sc://h:1$"),
        failures_told("sc://h:1/;token=SECRET"),
    ):
        raise Py4JError("x sc://h:1/;token=SECRET")
