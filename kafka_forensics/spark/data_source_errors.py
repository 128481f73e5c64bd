"""Errors as a user of Spark meets them: our sentence first, and the hint with it, not our stack before it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka_forensics.errors import ForensicsError, UsageError

_OF_WORKERS: Final = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH", "PYTHON_WORKER_FACTORY_SOCK_DIR")
"""Variables of the environment by which a Python process knows that it is Spark's worker."""
_HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""What a worker looks at once an error has ended its work; it ends itself behind that, so nobody else's errors lose their stack."""


@contextmanager
def in_words() -> Iterator[None]:
    """Let errors that are raised on purpose reach the user as one sentence; of a bug the stack stays."""
    try:
        yield
    except ForensicsError as error:
        if any(name in os.environ for name in _OF_WORKERS):
            os.environ[_HIDE] = "1"
        if isinstance(error, UsageError) and error.hint is not None:
            raise type(error)(f"{error}: {error.hint}") from error
        raise
