"""Paragraphs with labels, printed to a console."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from rich.text import Text

from kafka_forensics.cli.outputs.words import aligned, place_words
from kafka_forensics.cli.streams import Destination, divided_at_commands, line_spans, shown_command
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.safe_text import printable
from kafka_forensics.wording import message

if TYPE_CHECKING:
    from rich.console import Console

STYLES: Final = {
    "critical": "bold white on red",
    "error": "bold red",
    "warning": "yellow",
    "info": "cyan",
    "unknown": "bold magenta",
    "clean": "green",
}
INDENT: Final = 4
"""The column of the sentences about a kind of finding."""
_GUTTER: Final = 10
_LABEL_WIDTH: Final = 12


class FirstScreen(Struct, frozen=True):
    """What the text of a command begins with, in at most 12 lines of 80 columns."""

    verdict: str
    """One of VERDICTS."""
    sentence: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    """(label, text) of what was lost, what can be recovered, which brokers stay stopped."""
    command: str | None = None
    """The next command."""


def first_screen_text(screen: FirstScreen, to: Destination) -> str:
    """The lines that a command's text begins with, as wide as `to`."""
    page = ConsolePage(to.console())
    with page.console.capture() as capture:
        page.first_screen(screen)
    return capture.get()


class ConsolePage:
    """Prints paragraphs, each with a label in the columns before it."""

    def __init__(self, console: "Console") -> None:
        self.console = console

    def print_lines(self, lines: Iterable[Text]) -> None:
        """Print lines as they are, even if they are wider than the console."""
        for line in lines:
            line.rstrip()
            self.console.print(line, soft_wrap=True)

    def hanging(self, label: Text, body: Text, indent: int, deeper: int = 0) -> None:
        """Print `label`, and `body` from column `indent` on; lines after the first are `deeper`."""
        width = max(20, self.console.width - indent)
        for part, is_command in divided_at_commands(body.plain, width):
            if is_command:
                self.command(part, indent)
                continue
            text = body if part == body.plain else Text(part, body.style)
            for number, (start, end) in enumerate(line_spans(part, width, max(20, width - deeper))):
                line = Text().append_text(label)
                line.append(" " * (indent + (deeper if number else 0) - line.cell_len))
                self.console.print(line.append_text(text[start:end]), soft_wrap=True)
                label = Text()

    def paragraph(self, text: str, indent: int, style: str = "") -> None:
        """Print `text` without a label."""
        self.hanging(Text(), Text(text, style), indent)

    def heading(self, verdict: str, text: Text) -> None:
        """Print a paragraph with its verdict in the columns before it."""
        label = verdict if verdict in ("clean", "info") else verdict.upper()
        self.hanging(Text(label, STYLES[verdict]), text, _GUTTER)

    def labelled(self, label: str, text: str, style: str = "dim") -> None:
        """Print a paragraph with a label in `style` before it."""
        self.hanging(Text(f"  {label}", style), Text(text), _LABEL_WIDTH)

    def command(self, command: str, indent: int, label: str = "") -> None:
        """Print a command in lines that a shell reads as one, with a label before the first."""
        for number, line in enumerate(shown_command(printable(command), self.console.width, indent)):
            start = f"  {label}" if label and not number else ""
            self.console.print(Text.assemble((start, "bold"), line[len(start) :]), soft_wrap=True)

    def first_screen(self, screen: FirstScreen) -> None:
        """Print what a command's text begins with."""
        self.heading(screen.verdict, Text(screen.sentence, "bold"))
        for label, text in screen.lines:
            self.labelled(label, text, "bold")
        if screen.command is not None:
            self.command(screen.command, _LABEL_WIDTH, "" if screen.lines and screen.lines[-1][0] == "next" else "next")

    def kind(self, finding: Finding) -> None:
        """Print the kind of a finding, its severity and confidence, after a blank line."""
        style = STYLES["error" if finding.severity is Severity.CRITICAL else finding.severity.value]
        self.console.print()
        title = Text.assemble((finding.kind, style), f"  {finding.severity.value}, {finding.confidence.value}")
        self.hanging(Text(), title, 2)

    def finding(self, finding: Finding, crowded: Iterable[str]) -> None:
        """Print a finding as a sentence with its place; the brokers in `crowded` have several log directories."""
        self.paragraph(printable(message(finding)), INDENT)
        if where := place_words(finding.place, crowded):
            self.hanging(Text(" " * INDENT + "where", "dim"), Text(where), INDENT + 6)

    def replicas(self, rows: Iterable[list[str]], style: str = "") -> None:
        """Print rows of `replica_words` in columns."""
        for line in aligned(rows, self.console.width - 2):
            self.hanging(Text(), Text(line, style), 2, deeper=4)
