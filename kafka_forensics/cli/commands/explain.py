"""`explain`: what a kind of finding means, harmless look-alikes, and what to do next; and the rules for a known incident."""

import re
import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.streams import Destination, destination
from kafka_forensics.errors import UsageError, nearest
from kafka_forensics.model.safe_text import printable

if TYPE_CHECKING:
    from kafka_forensics.analysis.incidents import IncidentSignature

_CODE: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
"""Code within a paragraph of Markdown."""
_ISSUE_SIMILARITY: Final = 0.8
"""How similar a mistyped name must be to a known issue: most issues begin with the same letters."""

Kind = Annotated[
    str | None,
    typer.Argument(
        metavar="KIND",
        autocompletion=lambda: kind_names(),
        help="A kind of finding, e.g. UNCLEAN_LOSS, or a known incident, e.g. KAFKA-10751 or d6.",
    ),
]


def explain(kind: Kind = None, format_name: options.Format = "text", color: options.Color = "auto") -> int:
    """Explain a finding: what it means, likely causes, harmless look-alikes, and the next command.

    Without KIND, lists all kinds. Known incidents are those of docs/incidents.md.
    """
    from kafka_forensics.analysis.kinds import CATALOGUE
    from kafka_forensics.cli.outputs.rows import write_rows
    from kafka_forensics.wording import explain_page, title

    def row(name: str) -> dict[str, str]:
        entry = CATALOGUE[name]
        return {"kind": name, "severity": entry.severity.value, "confidence": entry.confidence.value, "title": title(name)}

    to = destination(sys.stdout, color=color)
    if kind is None:
        columns = ["kind", "severity", *(["confidence"] if format_name != "text" else []), "title"]
        by_severity = sorted(CATALOGUE, key=lambda name: (-CATALOGUE[name].severity.rank, name))
        write_rows(columns, map(row, by_severity), format_name, to)
        return 0
    name = kind.strip().upper().replace("-", "_")
    page = None if name in CATALOGUE else incident_page(kind)
    if page is not None:
        name = "INCIDENT_SIGNATURE"
    else:
        if name not in CATALOGUE:
            _refuse_mistyped(kind)
        page = explain_page(kind)
    if format_name == "text":
        write_page(page, to)
    else:
        write_rows([*row(name), "page"], [{**row(name), "page": page}], format_name, to)
    return 0


def write_page(page: str, to: Destination) -> None:
    """Write a page of Markdown with headings, paragraphs and commands formatted for a terminal."""
    from rich.markdown import Markdown
    from rich.theme import Theme

    safe = "\n".join(map(printable, page.split("\n")))
    if not to.colour:  # backquotes mark names and commands where colours cannot
        safe = _CODE.sub(r"`` `\1` ``", safe)
    console = to.console()
    with console.use_theme(Theme({"markdown.code": "bold cyan"})), console.capture() as capture:
        console.print(Markdown(safe, code_theme="ansi_dark", hyperlinks=False))
    to.stream.writelines(line.rstrip() + "\n" for line in capture.get().strip("\n").split("\n"))


def kind_names() -> list[str]:
    """All kinds of findings, for completion."""
    from kafka_forensics.analysis.kinds import CATALOGUE

    return sorted(CATALOGUE)


def incident_page(name: str) -> str | None:
    """A page of Markdown on the known incidents of an issue or row (`KAFKA-10751`, `d6`), in any case; None if there is none."""
    from kafka_forensics.analysis.incidents import SIGNATURES

    searched = _normalised(name.strip().removeprefix("row "))
    signatures = [signature for signature in SIGNATURES if searched in _names(signature)]
    return "\n\n".join(chain.from_iterable(map(_paragraphs, signatures))) + "\n" if signatures else None


def _refuse_mistyped(name: str) -> None:
    """Raise UsageError if `name` is more similar to a known issue than to a kind of finding."""
    from kafka_forensics.analysis.incidents import SIGNATURES
    from kafka_forensics.analysis.kinds import CATALOGUE

    issues = [signature.issue.split(" ")[0] for signature in SIGNATURES if signature.issue is not None]
    near = nearest(name, [*CATALOGUE, *issues], cutoff=_ISSUE_SIMILARITY)
    if near in issues:
        raise UsageError(f"there is no finding kind and no known incident {name!r}", hint=f"did you mean {near}?")


def _names(signature: "IncidentSignature") -> Iterator[str]:
    """The names of an incident: its row, its issue, and the number of an issue that has a comment."""
    yield signature.incident
    if signature.issue is not None:
        yield _normalised(signature.issue)
        yield _normalised(signature.issue.split(" ")[0])


def _normalised(name: str) -> str:
    return name.casefold().replace("_", "-")


def _paragraphs(signature: "IncidentSignature") -> Iterator[str]:
    """The paragraphs of an incident's page."""
    from kafka_forensics.analysis.incidents import Weight

    issue = "no issue" if signature.issue is None else signature.issue
    yield f"# {signature.incident}: {issue}"
    yield f"{signature.summary[:1].upper()}{signature.summary[1:]}. Named by `INCIDENT_SIGNATURE`."
    lists = (
        ("Required for a match", (Weight.MUST,)),
        ("Further signs of it", (Weight.EXPECTED, Weight.EXTRA)),
        ("Signs against it", (Weight.AGAINST,)),
    )
    for heading, weights in lists:
        items = [f"- {condition.text}" for condition in signature.conditions if condition.weight in weights]
        if items:
            yield "\n".join([f"**{heading}.**", "", *items])
    yield f"**Affected.** {signature.affected_versions}."
    yield f"**Fixed in.** {', '.join(signature.fixed_in) or 'no release is known to fix it'}."
    yield (
        "**What to do next.** Find out which version ran at that time; the other findings of the partition show what was lost."
        " `kafka-forensics explain incident-signature` explains what a match proves; docs/incidents.md,"
        f" row {signature.incident}, shows an example and a near miss."
    )
