"""The heat map: every partition at a glance, by its verdict and by what was found on each broker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_forensics.evidence.inputs import broker_order
from kafka_forensics.model.results import VERDICTS
from kafka_forensics.report.document import FindingRow, PartitionRow
from kafka_forensics.report.picture import LEFT, RIGHT, Picture, Text
from kafka_forensics.report.words import number, plural, shown

_NARROWEST: Final = 6
_WIDEST: Final = 40
"""Units of a column."""
_ROW: Final = 18
_CELL: Final = 15
_TOP: Final = 4
_BROKERS: Final = 24
_LETTERS: Final = 60
"""Of the names that a cell says."""

HEAT: Final = tuple((f"v{rank}", verdict) for rank, verdict in enumerate(VERDICTS))
"""Style → the verdict that it is the colour of."""
_STYLE: Final = {verdict: style for style, verdict in HEAT}

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Lane:
    """A row of the map: what it is of, and a verdict for each partition."""

    name: str
    verdicts: list[str | None]
    """None: nothing of the partition is there."""


def heat_map(rows: Sequence[PartitionRow], findings: Mapping[Key, Sequence[FindingRow]]) -> Picture | None:
    """The map of all partitions, by topic and number: their verdicts, and the worst that was found on each broker.

    Of very many, several share a column, which has the colour of the worst of them. None for fewer than two.
    """
    if len(rows) < 2:
        return None
    ordered = sorted(rows, key=lambda row: (row.topic, row.partition))
    found = [_by_broker(row, findings.get((row.topic, row.partition), ())) for row in ordered]
    brokers = sorted({broker for of_row in found for broker in of_row}, key=broker_order)
    lanes = [
        _Lane("verdict", [row.verdict for row in ordered]),
        *(_Lane(f"broker {shown(broker)}", [of_row.get(broker) for of_row in found]) for broker in brokers[:_BROKERS]),
    ]
    each = -(-len(ordered) * _NARROWEST // (RIGHT - LEFT))
    width = min((RIGHT - LEFT) / -(-len(ordered) // each), _WIDEST)
    picture = Picture(_label(ordered, lanes[1:]))
    for at, lane in enumerate(lanes):
        y = _TOP + at * _ROW
        picture.name(lane.name, y + 12)
        for column, first in enumerate(range(0, len(ordered), each)):
            verdicts = [verdict for verdict in lane.verdicts[first : first + each] if verdict is not None]
            if verdicts:
                worst = max(verdicts, key=VERDICTS.index)
                title = _title(ordered[first : first + each], worst) if not at and worst not in ("clean", "info") else ""
                left = LEFT + column * width
                picture.box(_STYLE[worst], (left, left + width), y, _CELL, title)
    bottom = _TOP + len(lanes) * _ROW
    right = LEFT + -(-len(ordered) // each) * width
    picture.texts.append(Text("tk", LEFT, bottom + 12, _name(ordered[0]), "start"))
    if right - LEFT > (RIGHT - LEFT) / 2:
        picture.texts.append(Text("tk", right, bottom + 12, _name(ordered[-1]), "end"))
    picture.height = bottom + 20
    if each > 1:
        picture.notes.append(f"Each column stands for {each} partitions, and has the colour of the worst of them.")
    if len(brokers) > _BROKERS:
        picture.notes.append(f"{plural(len(brokers) - _BROKERS, 'further broker')} not drawn.")
    return picture


def _by_broker(row: PartitionRow, findings: Sequence[FindingRow]) -> dict[int | str, str]:
    """The worst that was found on each broker with a replica; `unknown` for a replica that was not read whole."""
    worst: dict[int | str, str] = {}
    told = [(replica.broker, "clean" if replica.read == "whole" else "unknown") for replica in row.replicas]
    told += [(finding.broker, finding.severity) for finding in findings if finding.broker is not None]
    for broker, verdict in told:
        worst[broker] = max(worst.get(broker, "clean"), verdict, key=VERDICTS.index)
    return worst


def _label(rows: Sequence[PartitionRow], lanes: Sequence[_Lane]) -> str:
    """The map in words."""
    said = [_counted([row.verdict for row in rows])]
    said += [f"{lane.name}: {_counted(lane.verdicts)}" for lane in lanes]
    return f"Heat map of {plural(len(rows), 'partition')}: {'; '.join(said)}"


def _counted(verdicts: Sequence[str | None]) -> str:
    worst_first = [verdict for verdict in reversed(VERDICTS) if verdict in verdicts]
    return ", ".join(f"{number(verdicts.count(verdict))} {verdict}" for verdict in worst_first) or "no replica"


def _title(rows: Sequence[PartitionRow], worst: str) -> str:
    """What a column stands for."""
    if len(rows) == 1:
        return f"{_name(rows[0])}: {worst}"
    many = sum(row.verdict == worst for row in rows)
    return f"{_name(rows[0])} to {_name(rows[-1])}: {number(many)} of {len(rows)} {worst}"


def _name(row: PartitionRow) -> str:
    return shown(f"{row.topic}-{row.partition}", _LETTERS)
