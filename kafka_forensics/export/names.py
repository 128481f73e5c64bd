"""Directory names of datasets: `topic=…/partition=…/broker=…`, safe on any file system whatever the names are."""

import hashlib
from typing import Final
from urllib.parse import quote

MAX_NAME_BYTES: Final = 255
"""Of one name in a directory, on every usual file system."""
_DIGEST_CHARACTERS: Final = 16
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""What readers of such directories take for null; a topic may be called so."""


def directory_of(topic: str, partition: int, broker: str) -> str:
    """The directory of one replica's rows, below that of the dataset."""
    return f"{_name('topic', topic)}/{_name('partition', str(partition))}/{_name('broker', broker)}"


def _name(key: str, value: str) -> str:
    """`key=value` with all but letters, digits, `_`, `.`, `-` and `~` percent-encoded.

    A name too long for a directory is cut, with `~` and a digest of the whole behind it; the files' own metadata has all of it.
    """
    spelled = value.encode("utf-8", "backslashreplace")
    encoded = quote(spelled, safe="")
    if value == _NO_VALUE:
        encoded = encoded.replace("_", "%5F", 1)
    room = MAX_NAME_BYTES - len(key) - 1
    if len(encoded) <= room:
        return f"{key}={encoded}"
    kept = b""
    for length in range(len(spelled), 0, -1):
        kept = spelled[:length].decode("utf-8", "ignore").encode()
        if len(quote(kept, safe="")) <= room - 1 - _DIGEST_CHARACTERS:
            break
    return f"{key}={quote(kept, safe='')}~{hashlib.sha256(spelled).hexdigest()[:_DIGEST_CHARACTERS]}"
