"""The tables of `docs/soundness.md`: a row for every kind, from its file in `analysis/kinds`. `python -m lab.soundness_page`.

Below a heading stand the kinds that name it as their section, in the catalogue's order. All text around the tables stays as it is.
"""

import re
from pathlib import Path
from typing import Final

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.wording import kind_text

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "soundness.md"
_TABLE: Final = re.compile(r"(?<=^## )(.+)(\n\n\| kind .+\n\|(?:---\|)+\n)(?:\|.+\n)*", re.MULTILINE)


def page(text: str) -> str:
    """The page with its tables made anew. Raises ValueError where a section has none, KeyError where a table has no kinds."""
    rows: dict[str, str] = {}
    for kind in CATALOGUE:
        words = kind_text(kind)
        row = f"| `{kind}` | {words.proves} | {words.cannot_see} | {words.looks_like_it} |\n"
        rows[words.section] = rows.get(words.section, "") + row
    made = _TABLE.sub(lambda table: f"{table[1]}{table[2]}{rows.pop(table[1])}", text)
    if rows:
        raise ValueError(f"no heading with a table: {', '.join(rows)}")
    return made


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
