"""fsspec's file systems as `pyarrow.fs` sees them, without a second cache behind our own.

Imports pyarrow, so it is imported only where a URI is opened.
"""

from typing import Any

from pyarrow import PythonFile
from pyarrow.fs import FSSpecHandler


def handler_of(filesystem: Any) -> Any:
    """The handler of one of fsspec's file systems."""
    make: Any = UncachedHandler  # all that it lacks by its type is written by its base without one
    return make(filesystem)


class UncachedHandler(FSSpecHandler):
    """Opens files so that a ranged read asks the service for that range and nothing more."""

    def open_input_file(self, path: str) -> Any:
        """A file for ranged reads. Raises FileNotFoundError if there is none."""
        filesystem: Any = self.fs
        if not filesystem.isfile(path):
            raise FileNotFoundError(path)
        return PythonFile(filesystem.open(path, mode="rb", cache_type="none"), mode="r")
