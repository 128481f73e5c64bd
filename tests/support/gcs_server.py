"""A server that speaks Google Cloud Storage's JSON interface, as a process of its own on loopback."""

import contextlib
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import GcsFileSystem

from tests.support.server_process import free_port, serving


@dataclass(frozen=True)
class GcsServer:
    """A running server: `endpoint` is `http://127.0.0.1:port`; its only bucket is `logs`."""

    endpoint: str

    def put(self, name: str, data: bytes) -> None:
        """One object of any name, of some bytes; markers for the directories above it are made here as little as by `gsutil`."""
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        url, kind = f"{self.endpoint}/upload/storage/v1/b/logs/o?{query}", {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(url, data, kind, method="POST")  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - loopback
            assert answer.status == 200

    def upload(self, folder: Path, prefix: str) -> None:
        """Every file below `folder` as an object below `prefix`."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                with self.filesystem().open_output_stream(f"logs/{prefix}/{file.relative_to(folder).as_posix()}") as stream:
                    stream.write(file.read_bytes())

    def filesystem(self) -> GcsFileSystem:
        """The server as pyarrow sees it."""
        return GcsFileSystem(anonymous=True, scheme="http", endpoint_override=self.endpoint.removeprefix("http://"))


@contextlib.contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """A server on a free port, up when the block begins and ended with it. Raises AssertionError if it does not come up."""
    port = free_port()
    options = ["--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=logs"]
    with serving([sys.executable, "-W", "ignore", "-m", "gcp_storage_emulator", "start", *options], port):
        yield GcsServer(f"http://127.0.0.1:{port}")
