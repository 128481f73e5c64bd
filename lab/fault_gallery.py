"""Makes the tables of `docs/faults.md`: findings of a scan and output of kafka-dump-log for every fault. `python -m
lab.fault_gallery`.

Each case's tree is made and scanned, and Kafka's tool dumps its damaged file: once without options, for logs once more with
`--deep-iteration`, for logs of internal topics with their decoder. This takes ten minutes. `--scan` updates only the column of this
tool. The text around the tables stays, except the totals at the end.
"""

import argparse
import itertools
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.offset_ranges import offset_range
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine import local
from lab.fault_gallery_peer import peer_says
from lab.fault_gallery_real import with_real_section
from lab.fault_gallery_totals import totals
from lab.kafka_jars import LAB
from tests.gallery.case import Case
from tests.gallery.cases import SECTIONS
from tests.support.brokers import Brokers

PAGE: Final = LAB.parent / "docs" / "faults.md"
COLUMNS: Final = ("fault", "injected", "this tool", "kafka-dump-log 4.3.0")
HEAD: Final = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n"
UNMEASURED: Final = "-"
_TABLE: Final = re.compile(r"(## (.+)\n(?:(?!#|\|).*\n)*)((?:\|.*\n)+)")
_TOTALS: Final = re.compile(r"(## Totals\n\n)(.*\n)")
_NEEDED: Final = frozenset({"COMMITTED_LOST_EVERYWHERE", "HW_BEYOND_LEO"})
"""Kinds whose cell says so when no broker holds the lost records."""
_ANNOTATIONS: Final = frozenset({"INCIDENT_SIGNATURE"})
"""Kinds that only group other findings; `docs/incidents.md` describes them."""


def scanned(case: Case, brokers: Brokers) -> ScanResult:
    """Scan the case's tree; `case.during` runs in the middle of the scan."""
    waiting = [] if case.during is None else [case.during]

    def progress(_done: int, _total: int) -> None:
        if waiting:
            waiting.pop()(brokers)

    paths = [str(path) for path in brokers.log_dirs]
    return local.scan(paths, ScanOptions(jobs=1, live=case.live, deep=case.deep), progress)


def verdict(case: Case, result: ScanResult) -> str:
    """The cell of this tool: findings, most severe first, with their offsets, brokers, and the brokers that hold a good copy."""
    findings = [finding for finding in result.findings if finding.kind not in _ANNOTATIONS]
    everywhere = max(
        (len(partition.replicas) for partition in result.partitions if not partition.topic.startswith("__")), default=0
    )
    by_kind = itertools.groupby(sorted(findings, key=_order), key=lambda finding: (finding.kind, finding.severity))
    text = ", ".join(_kind_text(kind, severity, list(group), everywhere) for (kind, severity), group in by_kind) or "nothing"
    holders = {
        tuple(finding.evidence["held_by"]) for finding in findings if finding.evidence.get("held_by") or finding.kind in _NEEDED
    }
    for holder in sorted(holders):
        text += f"; held by {', '.join(f'b{broker}' for broker in holder)}" if holder else "; no good copy"
    text += "".join(f"; {name.replace('_', ' ').replace('.', ' ')}: {value}" for name, value in _shown(case.shown, findings))
    return f"{text}; {case.note}" if case.note else text


def _shown(names: tuple[str, ...], findings: list[Finding]) -> Iterator[tuple[str, str]]:
    """(name, text) of each evidence field in `names`, from the most severe finding that has it; fields of no finding are left
    out."""
    worst_first = [{**finding.evidence, "confidence": finding.confidence.value} for finding in sorted(findings, key=_order)]
    for name in names:
        for finding in worst_first:
            value: Any = finding
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                yield name, _value_text(value)
                break


def _value_text(value: object) -> str:
    """Evidence as text in a cell: `true`, `1, 3`, `b1 16, b2 14`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"b{key} {_value_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_value_text(item) for item in value) or "none"
    return str(value)


def _order(finding: Finding) -> tuple[int, str, str]:
    return -finding.severity.rank, finding.kind, str(finding.place.broker)


def _kind_text(kind: str, severity: Severity, findings: list[Finding], everywhere: int) -> str:
    """`KIND` with its severity, its offsets if all findings have the same, and its brokers unless the only one is b2."""
    text = f"`{kind}` {severity.value}"
    places = {(finding.place.offset_start, finding.place.offset_end) for finding in findings}
    brokers = sorted({str(finding.place.broker) for finding in findings if finding.place.broker is not None})
    if len(places) == 1 and None not in (place := places.pop()):
        text += f" {offset_range(*place)}"
    if len(brokers) == everywhere > 1:
        return f"{text} on each"
    if brokers and brokers != ["2"] and everywhere > 1:
        text += f" on {', '.join(f'b{broker}' for broker in brokers)}"
    most = max(Counter(str(finding.place.broker) for finding in findings).values())
    return f"{text} ({'twice' if most == 2 else f'{most} times'})" if most > 1 else text


def cells(line: str) -> list[str]:
    """The stripped cells of a table's row."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_of(text: str) -> dict[str, list[list[str]]]:
    """Heading → rows of the table below it, each a list of cells."""
    return {heading: [cells(line) for line in table.splitlines()[2:]] for _, heading, table in _TABLE.findall(text)}


def gallery_rows(text: str) -> dict[str, list[list[str]]]:
    """`rows_of` for the gallery's tables only; the table of `On logs of real brokers` has other columns."""
    return {heading: rows for heading, rows in rows_of(text).items() if heading in SECTIONS}


def injected(case: Case) -> str:
    """The cell of the injection; negative controls are in italics."""
    return f"*{case.injected}*" if case.control else case.injected


def table(heading: str, old_rows: list[list[str]], *, with_peer: bool) -> str:
    """The table of a section, its cases in order. Cells of Kafka's tool come from `old_rows` unless `with_peer` runs it."""
    kept = {(row[0], row[1]): row[3] for row in old_rows if len(row) == len(COLUMNS)}
    lines = []
    for case in SECTIONS[heading]:
        with tempfile.TemporaryDirectory() as folder:
            ours = verdict(case, scanned(case, case.make(Path(folder) / "brokers")))
        theirs = peer_says(case) if with_peer else kept.get((case.fault, injected(case)), UNMEASURED)
        lines.append([case.fault, injected(case), ours, theirs])
    return HEAD + "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


def page(text: str, *, with_peer: bool) -> str:
    """The page with up-to-date tables and totals."""
    old_rows = rows_of(text)

    def updated(match: re.Match[str]) -> str:
        heading = match[2]
        return match[1] + (table(heading, old_rows[heading], with_peer=with_peer) if heading in SECTIONS else match[3])

    new_text = with_real_section(_TABLE.sub(updated, text))
    return _TOTALS.sub(lambda match: f"{match[1]}{totals(gallery_rows(new_text))}\n", new_text)


def main() -> None:
    """Write the tables of docs/faults.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scan", action="store_true", help="only the verdicts of this tool; needs no Java")
    PAGE.write_text(page(PAGE.read_text(), with_peer=not parser.parse_args().scan))


if __name__ == "__main__":
    main()
