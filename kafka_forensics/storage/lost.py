"""A source that was there when it was listed, and cannot be opened any more."""

from typing import NoReturn

from kafka_forensics.errors import ForensicsError, PathMissingError, SourceError
from kafka_forensics.storage.source import ByteFile, Entry, NotRegularError


class LostSource:
    """Stands for evidence at `name` that `error` kept from being opened: whatever is asked of it raises SourceError."""

    def __init__(self, name: str, error: ForensicsError) -> None:
        self.name = name
        self.seekable = True
        self.rejected: list[str] = []
        self.replaced: list[str] = []
        self.problems: list[str] = []
        self.refused: dict[str, str] = {}
        self.is_special = isinstance(error, NotRegularError)
        """Whether it is a pipe, a socket or a device."""
        self.reason = error.reason if isinstance(error, SourceError) else str(error)
        if isinstance(error, PathMissingError):
            self.reason = "no such file or directory"

    def list(self, path: str = "") -> list[Entry]:
        """Raises SourceError."""
        self._refuse(path)

    def stat(self, path: str) -> Entry:
        """Raises SourceError."""
        self._refuse(path)

    def open(self, path: str) -> ByteFile:
        """Raises SourceError."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise SourceError(path, self.reason)
