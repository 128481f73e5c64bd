"""The tables of `docs/faults.md`: what a scan and what kafka-dump-log say of every fault. `python -m lab.fault_gallery`.

Each case's tree is made anew, scanned, and its damaged file given to Kafka's own tool, once as it is and for logs once with
`--deep-iteration`, logs of internal topics once with their decoder; that takes ten minutes. `--scan` makes only the verdicts of
this tool anew and keeps what the page says of Kafka's. All text around the tables stays as it is, but for the totals at the end.
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
_TOTALS: Final = re.compile(r"(## In all\n\n)(.*\n)")
_NEEDED: Final = frozenset({"COMMITTED_LOST_EVERYWHERE", "HW_BEYOND_LEO"})
"""Kinds of which it is told that nobody holds what is lost."""
_ANNOTATIONS: Final = frozenset({"INCIDENT_SIGNATURE"})
"""Kinds that only name what others found; `docs/incidents.md` is about them."""


def scanned(case: Case, brokers: Brokers) -> ScanResult:
    """A scan of the case's tree, during which happens what the case says."""
    waiting = [] if case.during is None else [case.during]

    def progress(_done: int, _total: int) -> None:
        if waiting:
            waiting.pop()(brokers)

    paths = [str(path) for path in brokers.log_dirs]
    return local.scan(paths, ScanOptions(jobs=1, live=case.live, deep=case.deep), progress)


def verdict(case: Case, result: ScanResult) -> str:
    """The cell of this tool: findings, worst first, with where they are and who holds a good copy."""
    findings = [finding for finding in result.findings if finding.kind not in _ANNOTATIONS]
    everywhere = max(
        (len(partition.replicas) for partition in result.partitions if not partition.topic.startswith("__")), default=0
    )
    by_kind = itertools.groupby(sorted(findings, key=_order), key=lambda finding: (finding.kind, finding.severity))
    words = [_said(kind, severity, list(group), everywhere) for (kind, severity), group in by_kind]
    text = ", ".join(words) or "nothing"
    holders = {
        tuple(finding.evidence["held_by"]) for finding in findings if finding.evidence.get("held_by") or finding.kind in _NEEDED
    }
    for holder in sorted(holders):
        text += f"; held by {', '.join(f'b{broker}' for broker in holder) or 'nobody'}"
    text += "".join(f"; {name.replace('_', ' ').replace('.', ' ')}: {value}" for name, value in _shown(case.shown, findings))
    return f"{text}; {case.note}" if case.note else text


def _shown(names: tuple[str, ...], findings: list[Finding]) -> Iterator[tuple[str, str]]:
    """What the worst finding that has it says under each name; a name that none has is left out."""
    worst_first = [{**finding.evidence, "confidence": finding.confidence.value} for finding in sorted(findings, key=_order)]
    for name in names:
        for finding in worst_first:
            value: Any = finding
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                yield name, _worded(value)
                break


def _worded(value: object) -> str:
    """`true`, `1, 3`, `b1 16, b2 14`: evidence in a cell."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"b{key} {_worded(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_worded(item) for item in value) or "none"
    return str(value)


def _order(finding: Finding) -> tuple[int, str, str]:
    return -finding.severity.rank, finding.kind, str(finding.place.broker)


def _said(kind: str, severity: Severity, findings: list[Finding], everywhere: int) -> str:
    """`KIND` with its severity, its offsets if all have the same, and the brokers if they are others than b2."""
    text = f"`{kind}` {severity.value}"
    places = {(finding.place.offset_start, finding.place.offset_end) for finding in findings}
    brokers = sorted({str(finding.place.broker) for finding in findings if finding.place.broker is not None})
    if len(places) == 1 and None not in (place := places.pop()):
        text += f" [{place[0]}, {place[1]})"
    if len(brokers) == everywhere > 1:
        return f"{text} on each"
    if brokers and brokers != ["2"] and everywhere > 1:
        text += f" on {', '.join(f'b{broker}' for broker in brokers)}"
    most = max(Counter(str(finding.place.broker) for finding in findings).values())
    return f"{text} ({'twice' if most == 2 else f'{most} times'})" if most > 1 else text


def cells(line: str) -> list[str]:
    """The cells of a table's row, without blanks around them."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_of(text: str) -> dict[str, list[list[str]]]:
    """Heading → rows of the table below it, each a list of cells."""
    return {heading: [cells(line) for line in table.splitlines()[2:]] for _, heading, table in _TABLE.findall(text)}


def gallery_rows(text: str) -> dict[str, list[list[str]]]:
    """The same of the gallery's own tables: `On logs of real brokers` has one of other columns."""
    return {heading: rows for heading, rows in rows_of(text).items() if heading in SECTIONS}


def injected(case: Case) -> str:
    """The cell of what was injected; negative controls are in italics."""
    return f"*{case.injected}*" if case.control else case.injected


def table(heading: str, known: list[list[str]], *, with_peer: bool) -> str:
    """The table of a section: its cases in order. What is known of Kafka's tool is kept unless it is run again."""
    kept = {(row[0], row[1]): row[3] for row in known if len(row) == len(COLUMNS)}
    lines = []
    for case in SECTIONS[heading]:
        with tempfile.TemporaryDirectory() as folder:
            ours = verdict(case, scanned(case, case.make(Path(folder) / "brokers")))
        theirs = peer_says(case) if with_peer else kept.get((case.fault, injected(case)), UNMEASURED)
        lines.append([case.fault, injected(case), ours, theirs])
    return HEAD + "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


def page(text: str, *, with_peer: bool) -> str:
    """The page with its tables and its totals made anew."""
    known = rows_of(text)

    def fresh(match: re.Match[str]) -> str:
        heading = match[2]
        return match[1] + (table(heading, known[heading], with_peer=with_peer) if heading in SECTIONS else match[3])

    made = with_real_section(_TABLE.sub(fresh, text))
    return _TOTALS.sub(lambda match: f"{match[1]}{totals(gallery_rows(made))}\n", made)


def main() -> None:
    """Write the tables of docs/faults.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scan", action="store_true", help="only the verdicts of this tool; needs no Java")
    PAGE.write_text(page(PAGE.read_text(), with_peer=not parser.parse_args().scan))


if __name__ == "__main__":
    main()
