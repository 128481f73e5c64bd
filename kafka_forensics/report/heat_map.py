"""The heat map: the verdict of every partition, and the worst finding on each broker."""

from collections.abc import Mapping, Sequence
from typing import Final

from kafka_forensics.evidence.inputs import broker_order
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.results import VERDICTS
from kafka_forensics.report.document import FindingRow, PartitionRow
from kafka_forensics.report.picture import LEFT, RIGHT, Label, Picture
from kafka_forensics.report.words import number, plural, shown

_NARROWEST: Final = 6
_WIDEST: Final = 40
"""Units of a column."""
_ROW: Final = 18
_CELL: Final = 15
_TOP: Final = 4
_BROKERS: Final = 24
_LETTERS: Final = 60
"""Letters of a partition's name."""

HEAT: Final = tuple((f"v{rank}", verdict) for rank, verdict in enumerate(VERDICTS))
"""(style, verdict) of each colour."""
_STYLE: Final = {verdict: style for style, verdict in HEAT}

Lane = tuple[str, list[str | None]]
"""A row of the map: its name, and the verdict of each partition; None where there is no replica."""


def heat_map(rows: Sequence[PartitionRow], findings: Mapping[TopicPartition, Sequence[FindingRow]]) -> Picture | None:
    """The map of all partitions, by topic and number: their verdicts, and the worst finding on each broker.

    If there are too many for a column each, several share one, with the colour of the worst. None for fewer than two partitions.
    """
    if len(rows) < 2:
        return None
    ordered = sorted(rows, key=lambda row: (row.topic, row.partition))
    worst_by_broker = [_worst_by_broker(row, findings.get((row.topic, row.partition), ())) for row in ordered]
    brokers = sorted({broker for by_broker in worst_by_broker for broker in by_broker}, key=broker_order)
    lanes: list[Lane] = [("verdict", [row.verdict for row in ordered])]
    lanes += [
        (f"broker {shown(broker)}", [by_broker.get(broker) for by_broker in worst_by_broker]) for broker in brokers[:_BROKERS]
    ]
    per_column = -(-len(ordered) * _NARROWEST // (RIGHT - LEFT))
    columns = -(-len(ordered) // per_column)
    width = min((RIGHT - LEFT) / columns, _WIDEST)
    described = [f"{name}: {_counted(verdicts)}" for name, verdicts in lanes[1:]]
    described.insert(0, _counted(lanes[0][1]))
    picture = Picture(f"Heat map of {plural(len(rows), 'partition')}: {'; '.join(described)}")
    for number_of_lane, (name, verdicts) in enumerate(lanes):
        y = _TOP + number_of_lane * _ROW
        picture.name(name, y + 12)
        for column in range(columns):
            in_column = slice(column * per_column, (column + 1) * per_column)
            if replicas := [verdict for verdict in verdicts[in_column] if verdict is not None]:
                worst = max(replicas, key=VERDICTS.index)
                title = "" if number_of_lane or worst in ("clean", "info") else _title(ordered[in_column], worst)
                left = LEFT + column * width
                picture.box(_STYLE[worst], (left, left + width), y, _CELL, title)
    bottom = _TOP + len(lanes) * _ROW
    right = LEFT + columns * width
    picture.texts.append(Label("tk", LEFT, bottom + 12, _name(ordered[0]), "start"))
    if right - LEFT > (RIGHT - LEFT) / 2:
        picture.texts.append(Label("tk", right, bottom + 12, _name(ordered[-1]), "end"))
    picture.height = bottom + 20
    if per_column > 1:
        picture.notes.append(f"Each column stands for {per_column} partitions, and has the colour of the worst of them.")
    if len(brokers) > _BROKERS:
        picture.notes.append(f"{plural(len(brokers) - _BROKERS, 'further broker')} not drawn.")
    return picture


def _worst_by_broker(row: PartitionRow, findings: Sequence[FindingRow]) -> dict[int | str, str]:
    """The worst finding on each broker with a replica; `unknown` for a replica that was not fully read."""
    worst: dict[int | str, str] = {}
    verdicts = [(replica.broker, "clean" if replica.read == "whole" else "unknown") for replica in row.replicas]
    verdicts += [(finding.broker, finding.severity) for finding in findings if finding.broker is not None]
    for broker, verdict in verdicts:
        worst[broker] = max(worst.get(broker, "clean"), verdict, key=VERDICTS.index)
    return worst


def _counted(verdicts: Sequence[str | None]) -> str:
    worst_first = [verdict for verdict in reversed(VERDICTS) if verdict in verdicts]
    return ", ".join(f"{number(verdicts.count(verdict))} {verdict}" for verdict in worst_first) or "no replica"


def _title(rows: Sequence[PartitionRow], worst: str) -> str:
    """The tooltip of a column."""
    if len(rows) == 1:
        return f"{_name(rows[0])}: {worst}"
    count = sum(row.verdict == worst for row in rows)
    return f"{_name(rows[0])} to {_name(rows[-1])}: {number(count)} of {len(rows)} {worst}"


def _name(row: PartitionRow) -> str:
    return shown(f"{row.topic}-{row.partition}", _LETTERS)
