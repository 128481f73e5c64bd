"""Sends a Produce request with a raw batch, which client libraries or the coordinator would not allow."""

import socket
import struct
from typing import Final

from lab.errors import LabError
from lab.settings import LOOPBACK

PRODUCE: Final = 0
VERSION: Final = 3
CORRELATION_ID: Final = 7
TIMEOUT_SECONDS: Final = 20
NO_TEXT: Final = struct.pack(">h", -1)


def _string(text: str) -> bytes:
    """A string in the request format: its length as int16, then UTF-8."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def raw_produce(port: int, topic: str, batch: bytes, *, partition: int = 0, transactional_id: str | None) -> int:
    """Send a batch to the leader at `port` with acks=-1; return its base offset. Raises LabError if the leader refuses it."""
    header = struct.pack(">hhi", PRODUCE, VERSION, CORRELATION_ID) + _string("lab")
    settings = (NO_TEXT if transactional_id is None else _string(transactional_id)) + struct.pack(">hi", -1, TIMEOUT_SECONDS * 1000)
    data = struct.pack(">i", 1) + _string(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    request = header + settings + data
    with socket.create_connection((LOOPBACK, port), TIMEOUT_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    position = 4 + 4 + 2 + len(topic.encode()) + 4
    _, error, base_offset = struct.unpack_from(">ihq", answer, position)
    if error:
        raise LabError(f"{topic}-{partition}: the leader refused a batch with error {error}")
    return int(base_offset)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise LabError("the leader closed the connection")
        data += more
    return data
