"""Object stores on loopback, each in a separate process: moto's S3 with a proxy that records requests and injects errors, and
GCS."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from pyarrow.fs import GcsFileSystem

SECONDS_TO_START: Final = 30.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[None]:
    """Run a server that listens on `port` for the length of the block. Raises AssertionError if it does not start."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONWARNINGS": ""}
    )
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while True:
            assert process.poll() is None, f"{command[-1]}: the server ended before it was up"
            assert time.monotonic() < deadline, f"{command[-1]}: the server does not come up"
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


ACCESS_KEY: Final = "AKIATESTKEYOFNOBODY"
SECRET_KEY: Final = "wJalrSecretThatMustNeverBeShown"  # noqa: S105 - a name for tests, of nobody
SECONDS_TO_ANSWER: Final = 20.0


@dataclass
class S3Server:
    endpoint: str

    def client(self) -> Any:
        """A boto3 client of this server, to create buckets and objects."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )

    def upload(self, folder: Path, bucket: str, prefix: str) -> None:
        """Upload every file below `folder` as an object below `prefix`; create the bucket if needed."""
        client = self.client()
        client.create_bucket(Bucket=bucket)
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                client.put_object(Bucket=bucket, Key=f"{prefix}/{file.relative_to(folder).as_posix()}", Body=file.read_bytes())


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run moto's S3 server on a free port for the length of the block. Raises AssertionError if it does not start."""
    port = free_port()
    with serving([sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        yield S3Server(f"http://127.0.0.1:{port}")


@dataclass(frozen=True)
class Request:
    """A request that passed the proxy; `answered` is the size of the response body in bytes."""

    method: str
    path: str
    range: str | None
    status: int
    answered: int


Fault = Callable[[str, str, int], "int | bytes | tuple[int, bytes] | None"]
"""`fault(method, path, number)` → status to answer, body to send instead, both, or None to forward; requests are numbered from
1."""


def error_body(code: str, message: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message><RequestId>1</RequestId></Error>".encode()


SLOW_DOWN: Final = 503, error_body("SlowDown", "Please reduce your request rate.")
INTERNAL_ERROR: Final = 500, error_body("InternalError", "We encountered an internal error. Please try again.")
ACCESS_DENIED: Final = 403, error_body("AccessDenied", "Access Denied")


@dataclass
class S3Proxy:
    """A proxy in front of a server: tests use its `endpoint`, set `fault`, and read `requests`, which are in order."""

    endpoint: str
    requests: list[Request] = field(default_factory=list)
    fault: Fault | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    number: int = 0

    def of(self, method: str, part: str = "") -> list[Request]:
        return [request for request in self.requests if request.method == method and part in request.path]


@contextlib.contextmanager
def s3_proxy(server: S3Server) -> Iterator[S3Proxy]:
    """Run a proxy in front of `server` for the length of the block."""
    host = server.endpoint.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            with proxy.lock:
                proxy.number += 1
                number = proxy.number
            sent = _body(self)
            injected = None if proxy.fault is None else proxy.fault(self.command, self.path, number)
            headers: dict[str, str]
            if isinstance(injected, int):
                status, headers, body = injected, {}, b""
            elif isinstance(injected, tuple):
                status, headers, body = injected[0], {"Content-Type": "application/xml"}, injected[1]
            else:
                status, headers, body = _forward(host, self, sent)
                body = body if injected is None else injected
            size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
            with proxy.lock:
                answered = 0 if self.command == "HEAD" else len(body)
                proxy.requests.append(Request(self.command, self.path, self.headers.get("Range"), status, answered))
            self.send_response_only(status)
            for name, value in (headers | {"Content-Length": size}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the base looks for these names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
            """Log nothing: `requests` has them."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    proxy = S3Proxy(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join(10)


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    """A request's body, its chunks joined."""
    if "chunked" not in handler.headers.get("Transfer-Encoding", ""):
        return handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
    chunks = []
    while size := int(handler.rfile.readline().partition(b";")[0], 16):
        chunks.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(chunks)


def _forward(host: str, handler: BaseHTTPRequestHandler, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(host, timeout=SECONDS_TO_ANSWER)
    passed = {name: value for name, value in handler.headers.items() if name.lower() not in {"transfer-encoding", "expect"}}
    try:
        connection.request(handler.command, handler.path, sent or None, headers=passed | {"Content-Length": str(len(sent))})
        answer = connection.getresponse()
        dropped = {"transfer-encoding", "connection", "server", "date"}
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in dropped}
        return answer.status, headers, answer.read()
    finally:
        connection.close()


@dataclass(frozen=True)
class GcsServer:
    """A running server: `endpoint` is `http://127.0.0.1:port`; its only bucket is `logs`."""

    endpoint: str

    def put(self, name: str, data: bytes) -> None:
        """Create an object; like `gsutil`, without markers for the directories above it."""
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        url, kind = f"{self.endpoint}/upload/storage/v1/b/logs/o?{query}", {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(url, data, kind, method="POST")  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - loopback
            assert answer.status == 200

    def upload(self, folder: Path, prefix: str) -> None:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                with self.filesystem().open_output_stream(f"logs/{prefix}/{file.relative_to(folder).as_posix()}") as stream:
                    stream.write(file.read_bytes())

    def filesystem(self) -> GcsFileSystem:
        return GcsFileSystem(anonymous=True, scheme="http", endpoint_override=self.endpoint.removeprefix("http://"))


@contextlib.contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """Run a GCS emulator on a free port for the length of the block. Raises AssertionError if it does not start."""
    port = free_port()
    options = ["--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=logs"]
    with serving([sys.executable, "-W", "ignore", "-m", "gcp_storage_emulator", "start", *options], port):
        yield GcsServer(f"http://127.0.0.1:{port}")
