"""Ranges of offsets in what people read: the first and the last one, in every command."""

from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.wording import offset_range

SAMPLE = str(Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election")


def test_both_ends_are_named() -> None:
    assert [offset_range(*each) for each in ((300, 370), (5, 6), (5, 5))] == ["300 to 369", "5", "none"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scan", "--topic", "audit"], "committed records at offsets 300 to 369 survive"),
        (["plan", "--topic", "audit", "--partition", "0"], "300 to 369"),
        (["metadata", "--topic", "audit"], "cost offsets 300 to 369"),
        (["epochs", "--topic", "audit"], "0 to 299"),
        (["transactions", "--topic", "payments"], "0 to 4"),
        (["changes", SAMPLE.replace("unclean-election", "healthy"), "--topic", "audit"], "0 to 369"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_every_command_writes_ranges_alike(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert outcome([*arguments, SAMPLE, "--format", "table"]) in (0, 1)
    out = capsys.readouterr().out
    assert said in " ".join(out.split())
    assert "370)" not in out
    assert ".." not in out.replace("PATH...", "")
