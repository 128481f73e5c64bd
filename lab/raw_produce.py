"""One Produce request as bytes: what no client would send, because its library or the coordinator would not let it."""

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


def _text(words: str) -> bytes:
    encoded = words.encode()
    return struct.pack(">h", len(encoded)) + encoded


def raw_produce(port: int, topic: str, batch: bytes, *, partition: int = 0, transactional_id: str | None) -> int:
    """Give the leader at `port` a record batch as it is, acks -1; the base offset it gave it. Raises LabError if it refuses."""
    header = struct.pack(">hhi", PRODUCE, VERSION, CORRELATION_ID) + _text("lab")
    settings = (NO_TEXT if transactional_id is None else _text(transactional_id)) + struct.pack(">hi", -1, TIMEOUT_SECONDS * 1000)
    data = struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
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
