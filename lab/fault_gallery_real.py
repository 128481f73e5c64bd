"""Makes the section of `docs/faults.md` on logs of real brokers: which faults are shown on them, and why others are not.

It is made from the declarations that `tests/broker` runs (`tests/gallery/real_brokers.py`, `broker_made.py`), without a broker.
"""

import re
import textwrap
from collections import Counter
from itertools import groupby
from typing import Final

from kafka_forensics.model.offset_ranges import offset_range
from tests.gallery.broker_made import BROKER_CASES, COPIES, FORK, BrokerCase, FindingRow
from tests.gallery.cases import SECTIONS
from tests.gallery.real_brokers import DIFFERENCES, NOT_ON_REAL_LOGS, injections

HEADING: Final = "On logs of real brokers"
COLUMNS: Final = ("fault", "what brokers did", "copy", "this tool")
BROKERS: Final = 3
WIDTH: Final = 132
INJECTED: Final = """
Three brokers of Kafka 4.3.0 also write the log of these tables (`lab/fault_base.py`): the same batches at the same offsets and
bytes, with segments and epochs that the brokers created. Tests (`make test-broker`) put each injection for three equal replicas
into the brokers' files. A scan must give the same answer as for the generated files. Without damage, it gives nothing above
`info`. {} of them give other findings, because the brokers also have logs of the controller and of the coordinator. No broker
writes such bytes: disks, copies and people cause them. Of the rows above:
"""
BROUGHT_ABOUT: Final = """
Brokers cause other faults by themselves. Three brokers run one history with a topic for every fault (`lab/broker_faults.py`), and
it is copied {} times:
"""
TABLE_OF_COPIES: Final = """
The table lists every finding except `RISKY_CONFIG`, `KEY_PLACEMENT` and similarities to incidents. Rows in italics are negative
controls. In `after`, the last leader of every topic was elected while the ISR was empty, which loses
nothing (`UNCLEAN_ELECTION`). To simulate a power failure, the history kills a broker and cuts its log at its recovery point,
above which nothing was flushed (`lab/power_failure.py`). Separate tests cover the `-future` directory of a move between two log
directories (F47) and starts with damaged logs (`tests/broker`). Kafka 0.10.2.2, which has no leader epochs, makes F34 in
`sample_logs/silent-divergence`.
"""
_SECTION: Final = re.compile(rf"(## {HEADING}\n\n)(.*?)(?=\n## )", re.DOTALL)


def with_real_section(text: str) -> str:
    """The page with an up-to-date section."""
    return _SECTION.sub(lambda match: match[1] + section(), text)


def section() -> str:
    """The section without its heading."""
    done = Counter(heading for heading, _ in injections())
    bullets = []
    for heading, cases in SECTIONS.items():
        why = NOT_ON_REAL_LOGS.get(heading)
        bullets.append(_filled(f"- {heading}: {done[heading]} of {len(cases)}.{f' {why}' if why else ''}", indent="  "))
    copies = [_filled(f"- `{name}`: {state}.", indent="  ") for name, state in COPIES.items()]
    table = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    table += [f"| {' | '.join(row(case))} |" for case in sorted(BROKER_CASES, key=lambda case: (case.fault == "-", case.fault))]
    parts = [
        _filled(INJECTED.format(len(DIFFERENCES))),
        "\n".join(bullets),
        _filled(BROUGHT_ABOUT.format(len(COPIES))),
        "\n".join(copies),
        _filled(TABLE_OF_COPIES),
        "\n".join(table),
    ]
    return "\n\n".join(parts) + "\n"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def row(case: BrokerCase) -> list[str]:
    """The cells of a row."""
    return [case.fault, f"*{case.done}*" if case.control else case.done, case.copy, verdict(case)]


def verdict(case: BrokerCase) -> str:
    """The findings, most severe first, with their offsets, partition, brokers, and the brokers that hold lost records."""
    ordered = sorted(case.findings, key=lambda cells: (_RANK[cells[2]], cells[1], cells[0] or 0, str(cells[4])))
    words = [_words(list(group)) for _, group in groupby(ordered, key=lambda cells: (*cells[:3], *cells[4:]))]
    return ", ".join(words) or "nothing"


_RANK: Final = {"critical": 0, "error": 1, "warning": 2, "info": 3}


def _words(rows: list[FindingRow]) -> str:
    """Findings that differ only in their broker: `KIND` severity a to b on b1, b3, held by b2."""
    partition, kind, severity, _, start, end, holders = rows[0]
    text = f"`{kind}` {severity}"
    if start == FORK:
        text += " from the fork on"
    elif start is not None:
        text += f" {offset_range(start, end)}"
    if partition:
        text += f" in partition {partition}"
    brokers = [f"b{cells[3]}" for cells in rows if cells[3] is not None]
    if brokers:
        text += " on each" if len(brokers) == BROKERS else f" on {', '.join(brokers)}"
    return f"{text}, held by {', '.join(f'b{holder}' for holder in holders)}" if holders else text
