"""Tables of any length for a person: columns as wide as the first rows need, nothing wrapped, nothing gathered."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

SAMPLED_ROWS: Final = 200
"""Rows a table looks at before it decides how wide its columns are."""


def table_lines(heads: Sequence[str], right: Iterable[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table with these `heads`, of which those in `right` stand to the right; none without rows.

    Columns that say nothing in a short table are left out. Later rows may stand out. Cells must be safe to print.
    """
    numeric = frozenset(right)
    left = iter(rows)
    sample = [list(row) for row in islice(left, SAMPLED_ROWS)]
    if not sample:
        return
    used = [at for at in range(len(heads)) if len(sample) == SAMPLED_ROWS or any(row[at] for row in sample)]
    widths = {at: max(len(row[at]) for row in [heads, *sample]) for at in used}
    for row in chain([heads], sample, left):
        cells = (row[at].rjust(widths[at]) if heads[at] in numeric else row[at].ljust(widths[at]) for at in used)
        yield "  ".join(cells).rstrip() + "\n"
