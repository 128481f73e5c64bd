"""Evidence that is gone when it is opened again says so, whatever is asked of it."""

import pytest

from kafka_forensics.errors import ForensicsError, PathMissingError, SourceError
from kafka_forensics.storage.source import ByteSource, LostSource


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PathMissingError("broker-1: no such file or directory"), "no such file or directory"),
        (SourceError("broker-1", "permission denied"), "permission denied"),
    ],
)
def test_whatever_is_asked_is_refused_with_path_and_reason(error: ForensicsError, reason: str) -> None:
    source: ByteSource = LostSource("broker-1", error)
    assert isinstance(source, ByteSource)
    assert (source.name, source.problems, source.rejected) == ("broker-1", [], [])
    for ask in (source.list, source.stat, source.open):
        with pytest.raises(SourceError) as refused:
            ask("orders-0/x.log")
        assert (refused.value.path, refused.value.reason) == ("orders-0/x.log", reason)
