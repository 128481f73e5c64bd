"""Where Spark is said to be: nothing there is told at once, in one sentence."""

import socket

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.spark import default_builder, session

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
