"""`python -m bench.store FOLDER MILLISECONDS`: serves a folder as bucket `bench` of a storage service with this delay per request.

It is read-only and implements the part of S3 that a scan uses, so that hundreds of thousands of objects cost little beside the
delay. Prints its port, and ends when stdin is closed.
"""

import asyncio
import os
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen
from xml.sax.saxutils import escape

BUCKET: Final = "bench"
PAGE_SIZE: Final = 1000
_LAST: Final = "\U0010ffff"


class Store:
    """The objects of a folder at the time of construction; `requests` counts requests by method."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        found = []
        for directory, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(directory, name)
                found.append((os.path.relpath(path, folder), os.stat(path)))
        found.sort(key=lambda row: row[0])
        self.keys = [key for key, _ in found]
        self.files = dict(found)
        self.requests: dict[str, int] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
                byte_range = next(
                    (line[6:].strip() for line in head.decode("latin-1").split("\r\n") if line.lower().startswith("range:")), ""
                )
                await asyncio.sleep(self.seconds)
                writer.write(self.answer(method, target, byte_range))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection
        finally:
            writer.close()

    def answer(self, method: str, target: str, byte_range: str) -> bytes:
        """The whole response to a request; `byte_range` is the Range header, "" for all bytes."""
        url = urlsplit(target)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/")
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        kind = "LIST" if "list-type" in query else "COUNT" if key == ".requests" else method
        self.requests[kind] = self.requests.get(kind, 0) + 1
        if kind == "COUNT":
            return _answer(HTTPStatus.OK, " ".join(f"{name}={count}" for name, count in self.requests.items()).encode())
        if kind == "LIST":
            return _answer(HTTPStatus.OK, self.page(query).encode(), {"Content-Type": "application/xml"})
        if not key:
            return _answer(HTTPStatus.OK, b"")
        info = self.files.get(key)
        if info is None:
            return _answer(HTTPStatus.NOT_FOUND, b"", {"Content-Type": "application/xml"})
        headers = {
            "ETag": f'"{info.st_mtime_ns:x}-{info.st_size:x}"',
            "Last-Modified": formatdate(info.st_mtime, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        if method == "HEAD":
            return _answer(HTTPStatus.OK, b"", headers, info.st_size)
        first, last = 0, info.st_size - 1
        if byte_range:
            start, _, end = byte_range.removeprefix("bytes=").partition("-")
            first, last = int(start), min(last, int(end) if end else last)
            headers["Content-Range"] = f"bytes {first}-{last}/{info.st_size}"
        with open(self.folder / key, "rb") as file:
            data = os.pread(file.fileno(), last - first + 1, first)
        return _answer(HTTPStatus.PARTIAL_CONTENT if byte_range else HTTPStatus.OK, data, headers)

    def page(self, query: dict[str, str]) -> str:
        """A page of a listing, in the form of ListObjectsV2."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", "")
        at = bisect_left(self.keys, max(prefix, after))
        rows: list[str] = []
        most = int(query.get("max-keys", PAGE_SIZE))
        while at < len(self.keys) and len(rows) < most and (key := self.keys[at]).startswith(prefix):
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                info = self.files[key]
                rows.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{info.st_size}</Size>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
                )
                at += 1
            else:
                common = key[: cut + 1]
                rows.append(f"<CommonPrefixes><Prefix>{escape(common)}</Prefix></CommonPrefixes>")
                at = bisect_left(self.keys, common + _LAST, at)
        more = at < len(self.keys) and self.keys[at].startswith(prefix)
        rows.append(f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(rows)}</KeyCount>")
        if more:
            rows.append(f"<NextContinuationToken>{escape(self.keys[at])}</NextContinuationToken>")
        name = "http://s3.amazonaws.com/doc/2006-03-01/"
        return f'<?xml version="1.0"?><ListBucketResult xmlns="{name}"><Name>{BUCKET}</Name>{"".join(rows)}</ListBucketResult>'


def _answer(status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None, size: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Length: {len(body) if size is None else size}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def serve(store: Store) -> None:
    """Print the port, and serve until stdin is closed."""
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


@dataclass(frozen=True, slots=True)
class Service:
    """A running service and its address."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for a client of the service."""
        settings = {"ACCESS_KEY_ID": "bench", "SECRET_ACCESS_KEY": "bench", "REGION": "us-east-1", "EC2_METADATA_DISABLED": "true"}
        return {f"AWS_{name}": value for name, value in (settings | {"ENDPOINT_URL": self.endpoint}).items()}

    def requests(self) -> dict[str, int]:
        """The number of requests so far, by kind."""
        with urlopen(f"{self.endpoint}/{BUCKET}/.requests") as answer:  # noqa: S310 - our own
            return {name: int(count) for name, _, count in (part.partition("=") for part in answer.read().decode().split())}


@contextmanager
def served_by(command: list[str]) -> Iterator[Service]:
    """Run a command that calls `serve` for the length of the block."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Service(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.stdin.close()


def served(folder: Path, milliseconds: int) -> AbstractContextManager[Service]:
    """Run a service of the folder for the length of the block."""
    return served_by([sys.executable, "-m", "bench.store", str(folder), str(milliseconds)])


def main() -> None:
    """Serve the folder on the command line."""
    folder, milliseconds = sys.argv[1:]
    asyncio.run(serve(Store(Path(folder), float(milliseconds) / 1000)))


if __name__ == "__main__":
    main()
