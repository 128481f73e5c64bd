"""A real Spark Connect server on loopback, from the pip package: a process that clients reach as `sc://127.0.0.1:port`."""

import contextlib
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.spark_cluster import QUICK_JAVA, SECONDS_TO_START, end, spark_environment, wait_until

_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_UP: Final = re.compile("Spark Connect server started")


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The URL of a server with two cores that tries tasks up to four times, up when the block begins and ended with it."""
    environment = spark_environment(folder) | {"SPARK_DAEMON_MEMORY": "768m"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    settings = {
        "spark.master": "local[2,4]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
    }
    configured = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    log = folder / "connect.log"
    with log.open("wb") as written:
        server = subprocess.Popen(
            [
                os.path.join(environment["SPARK_HOME"], "bin", "spark-class"),
                _SUBMIT,
                "--class",
                _SERVER,
                *configured,
                "spark-internal",
            ],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )

    def is_up() -> bool:
        said = log.read_text(errors="replace")
        assert server.poll() is None, f"the server ended before it was up: {said[-2000:]}"
        return _UP.search(said) is not None

    try:
        wait_until(is_up, "a server of Spark Connect", SECONDS_TO_START, pause=0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        end(server)
