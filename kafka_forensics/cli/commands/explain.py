"""`explain`: what a finding means, what looks like it and is harmless, and what to do next; and what is known of an incident."""

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import Destination, destination, printable
from kafka_forensics.errors import UsageError, nearest

if TYPE_CHECKING:
    from kafka_forensics.analysis.incidents import IncidentSignature

_CODE: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
"""Code within a paragraph."""
_LIKE: Final = 0.8
"""How like a known issue a name must be: most of them begin alike."""

Kind = Annotated[
    str | None,
    typer.Argument(
        metavar="KIND",
        autocompletion=lambda: kind_names(),
        help="A finding kind, e.g. UNCLEAN_LOSS, or a known incident, e.g. KAFKA-10751 or d6; none lists the kinds.",
    ),
]


def explain(kind: Kind = None, format_name: options.Format = None, color: options.Color = "auto") -> int:
    """What a finding means, likely causes, harmless look-alikes, and the next command; without KIND, the list of kinds.

    Of a known incident that INCIDENT_SIGNATURE names, by its issue or its row in docs/incidents.md: by what it is known again.
    """
    from kafka_forensics.analysis.kinds import CATALOGUE
    from kafka_forensics.cli.outputs.rows import write_rows
    from kafka_forensics.wording import explain_page, title

    columns = ["kind", "severity", "confidence", "title"]
    to = destination(sys.stdout, color=color)
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
    wanted = choose("format", format_name or ("table" if to.stream.isatty() else "markdown"), options.FORMATS)
    name = kind.strip().upper().replace("-", "_")
    incident = None
    if name not in CATALOGUE:
        incident = incident_page(kind)
        if incident is None:
            _refuse_mistyped(kind)
    page = explain_page(kind) if incident is None else incident
    if wanted == "table":
        write_page(page, to)
        return 0
    if wanted == "markdown":
        to.stream.write(page)
        return 0
    name = name if incident is None else "INCIDENT_SIGNATURE"
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


def write_page(page: str, to: Destination) -> None:
    """Write a page of Markdown as a terminal shows it: headings, paragraphs and commands, without the marks around them."""
    from rich.markdown import Markdown
    from rich.theme import Theme

    safe = "\n".join(map(printable, page.split("\n")))
    if not to.colour:  # nothing else would tell names and commands from words
        safe = _CODE.sub(r"`` `\1` ``", safe)
    console = to.console()
    with console.use_theme(Theme({"markdown.code": "bold cyan"})), console.capture() as capture:
        console.print(Markdown(safe, code_theme="ansi_dark", hyperlinks=False))
    to.stream.writelines(line.rstrip() + "\n" for line in capture.get().strip("\n").split("\n"))


def kind_names() -> list[str]:
    """All finding kinds, for completion."""
    from kafka_forensics.analysis.kinds import CATALOGUE

    return sorted(CATALOGUE)


def incident_page(name: str) -> str | None:
    """A page of Markdown on the incidents of this issue or row (`KAFKA-10751`, `d6`), in any case; None if there is none."""
    from kafka_forensics.analysis.incidents import SIGNATURES

    wanted = _plain(name.strip().removeprefix("row "))
    signatures = [signature for signature in SIGNATURES if wanted in _names(signature)]
    return "\n\n".join("\n\n".join(_blocks(signature)) for signature in signatures) + "\n" if signatures else None


def _refuse_mistyped(name: str) -> None:
    """Raise UsageError if `name` is like an issue that is known, and less like a kind of finding."""
    from kafka_forensics.analysis.incidents import SIGNATURES
    from kafka_forensics.analysis.kinds import CATALOGUE

    issues = [signature.issue.split(" ")[0] for signature in SIGNATURES if signature.issue is not None]
    near = nearest(name, [*CATALOGUE, *issues], cutoff=_LIKE)
    if near in issues:
        raise UsageError(f"there is no finding kind and no known incident {name!r}", hint=f"did you mean {near}?")


def _names(signature: "IncidentSignature") -> Iterator[str]:
    """What the incident may be called: its row, its issue, and the issue's number where more is said of it."""
    yield signature.incident
    if signature.issue is not None:
        yield _plain(signature.issue)
        yield _plain(signature.issue.split(" ")[0])


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-")


def _blocks(signature: "IncidentSignature") -> Iterator[str]:
    """The page in paragraphs."""
    from kafka_forensics.analysis.incidents import Weight

    issue = "no issue" if signature.issue is None else signature.issue
    yield f"# {signature.incident}: {issue}"
    yield f"{signature.summary[:1].upper()}{signature.summary[1:]}. Named by `INCIDENT_SIGNATURE`."
    lists = (
        ("What must be there for a match", (Weight.MUST,)),
        ("What speaks for it besides", (Weight.EXPECTED, Weight.EXTRA)),
        ("What speaks against it", (Weight.AGAINST,)),
    )
    for heading, weights in lists:
        items = [f"- {condition.text}" for condition in signature.conditions if condition.weight in weights]
        if items:
            yield "\n".join([f"**{heading}.**", "", *items])
    yield f"**Affected.** {signature.affected_versions}."
    yield f"**Fixed in.** {', '.join(signature.fixed_in) or 'no release is known to fix it'}."
    yield (
        "**What to do next.** Find out which version ran at that time; the other findings of the partition say what it cost."
        " `kafka-forensics explain incident-signature` says how far such a likeness goes, and docs/incidents.md, row"
        f" {signature.incident}, shows what is named and what is not."
    )
