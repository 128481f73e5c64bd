"""`explain`: what a finding means, what looks like it and is harmless, and what to do next."""

import sys
from typing import Annotated

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.choices import choose
from kafka_forensics.cli.streams import destination

Kind = Annotated[
    str | None,
    typer.Argument(metavar="KIND", autocompletion=lambda: kind_names(), help="A finding kind, e.g. UNCLEAN_LOSS; none lists them."),
]


def explain(kind: Kind = None, format_name: options.Format = None, no_color: options.NoColor = False) -> int:
    """What a finding means, likely causes, harmless look-alikes, and the next command; without KIND, the list of kinds."""
    from kafka_forensics.analysis.catalogue import CATALOGUE
    from kafka_forensics.cli.rows import write_rows
    from kafka_forensics.wording import explain_page, title

    columns = ["kind", "severity", "confidence", "title"]
    to = destination(sys.stdout, no_color=no_color)
    if kind is None:
        wanted = choose("format", format_name or ("table" if to.stream.isatty() else "tsv"), options.FORMATS)
        shown = [name for name in columns if wanted != "table" or name != "confidence"]
        by_severity = sorted(CATALOGUE.items(), key=lambda item: (-item[1].severity.rank, item[0]))
        rows = [
            {"kind": name, "severity": usual.severity.value, "confidence": usual.confidence.value, "title": title(name)}
            for name, usual in by_severity
        ]
        write_rows(shown, rows, wanted, to)
        return 0
    wanted = choose("format", format_name or "markdown", options.FORMATS)
    page = explain_page(kind)
    if wanted in ("table", "markdown"):
        to.stream.write(wrapped(page, to.width) if to.stream.isatty() else page)
        return 0
    name = kind.strip().upper().replace("-", "_")
    usual = CATALOGUE[name]
    row = {
        "kind": name,
        "severity": usual.severity.value,
        "confidence": usual.confidence.value,
        "title": title(name),
        "page": page,
    }
    write_rows([*columns, "page"], [row], wanted, to)
    return 0


def wrapped(page: str, width: int) -> str:
    """`page` with its paragraphs folded to `width` columns; headings, code, tables and lists stay as they are."""
    from textwrap import fill

    blocks = page.strip("\n").split("\n\n")
    folded = [
        block if block.startswith(("#", "```", "|", "-", " ")) else fill(block, width, break_on_hyphens=False) for block in blocks
    ]
    return "\n\n".join(folded) + "\n"


def kind_names() -> list[str]:
    """All finding kinds, for completion."""
    from kafka_forensics.analysis.catalogue import CATALOGUE

    return sorted(CATALOGUE)
