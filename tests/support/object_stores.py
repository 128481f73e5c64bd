"""Object stores on loopback, each a process of its own: moto's S3 with a proxy that counts requests and breaks some, and GCS."""

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
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[None]:
    """Run `command`, which listens on `port`: up when the block begins, ended with it. Raises AssertionError if it is not."""
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
        """boto3's client of this server, for making buckets and objects."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )

    def upload(self, folder: Path, bucket: str, prefix: str) -> None:
        """Every file below `folder` as an object below `prefix`; the bucket is made if needed."""
        client = self.client()
        client.create_bucket(Bucket=bucket)
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                client.put_object(Bucket=bucket, Key=f"{prefix}/{file.relative_to(folder).as_posix()}", Body=file.read_bytes())


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server on a free port, up when the block begins and ended with it. Raises AssertionError if it does not come up."""
    port = free_port()
    with serving([sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        yield S3Server(f"http://127.0.0.1:{port}")


@dataclass(frozen=True)
class Request:
    """One request as the proxy saw it; `answered` bytes of body went back."""

    method: str
    path: str
    range: str | None
    status: int
    answered: int


Fault = Callable[[str, str, int], "int | bytes | tuple[int, bytes] | None"]
"""`fault(method, path, number)` of the request with this number: a status to give, a body to send instead, both, None to pass."""


def said(code: str, words: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{words}</Message><RequestId>1</RequestId></Error>".encode()


SLOW_DOWN: Final = 503, said("SlowDown", "Please reduce your request rate.")
INTERNAL_ERROR: Final = 500, said("InternalError", "We encountered an internal error. Please try again.")
ACCESS_DENIED: Final = 403, said("AccessDenied", "Access Denied")


@dataclass
class S3Proxy:
    """A proxy before a server: `endpoint` to be given instead of the server's, `requests` in order, `fault` to be set."""

    endpoint: str
    requests: list[Request] = field(default_factory=list)
    fault: Fault | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    number: int = 0

    def of(self, method: str, part: str = "") -> list[Request]:
        return [request for request in self.requests if request.method == method and part in request.path]


@contextlib.contextmanager
def s3_proxy(server: S3Server) -> Iterator[S3Proxy]:
    """A proxy before `server`, ended with the block."""
    host = server.endpoint.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            with proxy.lock:
                proxy.number += 1
                number = proxy.number
            sent = _body(self)
            wrong = None if proxy.fault is None else proxy.fault(self.command, self.path, number)
            headers: dict[str, str]
            if isinstance(wrong, int):
                status, headers, body = wrong, {}, b""
            elif isinstance(wrong, tuple):
                status, headers, body = wrong[0], {"Content-Type": "application/xml"}, wrong[1]
            else:
                status, headers, body = _forwarded(host, self, sent)
                body = body if wrong is None else wrong
            size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
            with proxy.lock:
                given = 0 if self.command == "HEAD" else len(body)
                proxy.requests.append(Request(self.command, self.path, self.headers.get("Range"), status, given))
            self.send_response_only(status)
            for name, value in (headers | {"Content-Length": size}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the base looks for these names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
            """Say nothing: the requests are kept."""

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
    """What a request carries, its chunks put together."""
    if "chunked" not in handler.headers.get("Transfer-Encoding", ""):
        return handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
    pieces = []
    while size := int(handler.rfile.readline().partition(b";")[0], 16):
        pieces.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(pieces)


def _forwarded(host: str, handler: BaseHTTPRequestHandler, sent: bytes) -> tuple[int, dict[str, str], bytes]:
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
        """One object of any name, of some bytes; markers for the directories above it are made here as little as by `gsutil`."""
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
    """A server on a free port, up when the block begins and ended with it. Raises AssertionError if it does not come up."""
    port = free_port()
    options = ["--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=logs"]
    with serving([sys.executable, "-W", "ignore", "-m", "gcp_storage_emulator", "start", *options], port):
        yield GcsServer(f"http://127.0.0.1:{port}")
