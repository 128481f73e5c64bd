"""`dump --format kafka-dump-log` held to what Kafka's own tool prints of the same files, line by line, complaints as well."""

from collections import Counter
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from tests.support.peer_dumps import Laid, dumps, kafka_ends_at, kafka_prints, one_line, said_to_end, shown

FORMAT = ("--format", "kafka-dump-log")
ENDED_AT_MOST = 20
"""Files at which Kafka's tool ends, of one kind: each needs a run of its own."""


def hold_to_kafka_s_tool(
    laid: list[Laid], layout: Path, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dump all files of a layout that go with an option, by both, and compare."""
    monkeypatch.chdir(layout)
    paths = [one.path for one in laid if option in one.options]
    options = [option] if option else []
    assert outcome(["dump", *paths, *FORMAT, *options]) == 0
    capture_result = capsys.readouterr()
    ours = dumps(capture_result.out)
    assert list(ours) == paths
    ended = said_to_end(capture_result.err.splitlines())
    assert len(ended) <= ENDED_AT_MOST
    rest = [path for path in paths if path not in ended]
    theirs, complaints = kafka_prints(rest, layout, *options)
    theirs |= {path: kafka_ends_at(path, layout, *options) for path in ended}
    assert [path for path in paths if one_line(ours[path]) != shown(theirs[path])] == []
    assert outcome(["dump", *rest, *FORMAT, *options]) == 0
    assert Counter(capsys.readouterr().err.splitlines()) == complaints
