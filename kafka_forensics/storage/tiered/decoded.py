"""The parts of remote segments with the bytes that brokers copied, for layouts whose objects hold other bytes."""

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.source import ByteFile, ByteSource, Entry
from kafka_forensics.storage.tiered.layout import RemoteLayout, RemotePart


class DecodedStore(ByteSource):
    """A remote store whose files are the parts of its segments: the path of a segment's objects, a dot, and a `RemotePart`."""

    def __init__(self, stored: ByteSource, layout: RemoteLayout) -> None:
        super().__init__(stored.name)
        assert layout.part_opener is not None, "the objects are the parts"
        self._open_part = layout.part_opener(stored)
        self.stored, self.layout = stored, layout
        self.request_seconds = stored.request_seconds

    def list(self, path: str = "") -> list[Entry]:
        """The objects as they are stored. Raises SourceError."""
        return self.stored.list(path)

    def stat(self, path: str) -> Entry:
        """An object as it is stored, or a part with its size. Raises SourceError."""
        entry = self.stored.stat(path)
        try:
            with self.open(path) as file:
                return entry._replace(size_in_bytes=file.size_in_bytes)
        except SourceError:
            return entry

    def open(self, path: str) -> ByteFile:
        """Open a part. Raises SourceError."""
        stem, _, suffix = path.rpartition(".")
        try:
            part = RemotePart(suffix)
        except ValueError as error:
            raise SourceError(path, "not a part of a remote segment") from error
        return self._open_part(stem, part)
