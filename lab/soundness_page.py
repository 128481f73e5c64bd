"""Makes the tables of `docs/soundness.md` from the files in `analysis/kinds`, a row per kind: `python -m lab.soundness_page`.

The table below a heading has the kinds with that section, in the catalogue's order. The text around the tables stays.
"""

import re
from pathlib import Path
from typing import Final

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.wording import kind_text

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "soundness.md"
_TABLE: Final = re.compile(r"(?<=^## )(.+)(\n\n\| kind .+\n\|(?:---\|)+\n)(?:\|.+\n)*", re.MULTILINE)


def page(text: str) -> str:
    """The page with up-to-date tables. Raises ValueError for a section without a table, KeyError for a table without kinds."""
    rows: dict[str, str] = {}
    for kind in CATALOGUE:
        words = kind_text(kind)
        row = f"| `{kind}` | {words.proves} | {words.cannot_see} | {words.looks_like_it} |\n"
        rows[words.section] = rows.get(words.section, "") + row
    updated = _TABLE.sub(lambda table: f"{table[1]}{table[2]}{rows.pop(table[1])}", text)
    if rows:
        raise ValueError(f"no heading with a table: {', '.join(rows)}")
    return updated


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
