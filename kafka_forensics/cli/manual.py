"""Each command's help after its description: options in panels, examples that run, and exit statuses."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from typer.core import TyperGroup

from kafka_forensics.cli.options import PANELS, PROGRAM

if TYPE_CHECKING:
    from typer._click.core import Command, Context  # elsewhere in other versions of typer
    from typer._click.formatting import HelpFormatter

_RAN: Final = "ran to the end"
_USAGE: Final = "wrong command line"
_INPUTS: Final = "wrong command line, or a PATH that does not exist or holds no Kafka log"
_INCOMPLETE: Final = "incomplete: some input could not be read; what was found is still printed"

_SCANS: Final = {0: f"{_RAN}, no finding at or above --fail-on", 1: "at least one such finding", 2: _INPUTS, 3: _INCOMPLETE}
_LISTS: Final = {0: _RAN, 2: _INPUTS, 3: _INCOMPLETE}
_SIMPLE: Final = {0: _RAN, 2: _USAGE}


class Manual(Struct, frozen=True):
    """The end of one command's help."""

    examples: tuple[str, ...]
    """As typed after `kafka-forensics `."""
    exit_statuses: dict[int, str]
    """Status → meaning."""


MAKE_SAMPLES: Final = "demo sample_logs"
UNCLEAN: Final = "sample_logs/unclean-election"

MANUAL: Final = {
    "": Manual(
        (MAKE_SAMPLES, f"scan {UNCLEAN}"),
        _SCANS | {70: "a bug in this tool; --debug shows the traceback", 130: "interrupted", 141: "the reader closed the pipe"},
    ),
    "scan": Manual(
        (
            f"scan {UNCLEAN}",
            f"scan --topic audit {UNCLEAN}",
            "scan sample_logs/healthy --output healthy.json",
            "scan sample_logs/healthy --output kafka.prom",
            f"scan {UNCLEAN} --report incident.html",
        ),
        _SCANS,
    ),
    "compare": Manual((f"compare {UNCLEAN} --topic audit", "compare --context 1 sample_logs/silent-divergence"), _SCANS),
    "changes": Manual(
        ("changes sample_logs/healthy sample_logs/unclean-election",),
        _SCANS | {0: f"{_RAN}, no finding at or above --fail-on, neither between the snapshots nor in the newest"},
    ),
    "dump": Manual(
        (
            "dump --offset 10..19 sample_logs/healthy/broker-1/orders-0",
            "dump --records sample_logs/healthy/broker-1/orders-1",
            "dump --explain sample_logs/healthy/broker-1/orders-1",
        ),
        _LISTS,
    ),
    "epochs": Manual((f"epochs {UNCLEAN} --topic audit",), _LISTS),
    "find": Manual(
        (f"find {UNCLEAN} --topic audit --offset 345", "find sample_logs/healthy --timestamp 2020-01-01..2100-01-01"),
        _LISTS | {0: "ran to the end, whether anything was found or not"},
    ),
    "groups": Manual(("groups sample_logs/healthy", "groups sample_logs/healthy --group billing"), _SCANS),
    "metadata": Manual((f"metadata {UNCLEAN} --topic audit",), _LISTS),
    "plan": Manual((f"plan {UNCLEAN}", f"plan {UNCLEAN} --topic audit --elect 1", f"plan {UNCLEAN} --output plan.json"), _LISTS),
    "recover": Manual(
        (f"recover {UNCLEAN} --output lost", f"recover {UNCLEAN} --keep 2 --output other"),
        {
            0: f"{_RAN}, and nothing is lost that could be produced again",
            1: "records were lost, and are written",
            2: f"{_INPUTS}, a directory for the output that is not empty, or a side that must be chosen with --keep",
            3: "incomplete: some input or record could not be read, or no side could be chosen for a partition;"
            " the found records are written",
        },
    ),
    "verify": Manual(
        (f"verify {UNCLEAN} --against plan.json",),
        {
            0: "every promise is kept",
            1: "at least one is broken",
            2: f"{_INPUTS}, or an invalid plan",
            3: "incomplete: some input could not be read, or a promise is unknown",
        },
    ),
    "transactions": Manual(("transactions sample_logs/healthy", "transactions sample_logs/healthy --topic payments"), _SCANS),
    "collect": Manual(
        (
            "collect sample_logs/healthy/broker-1 --output broker-1.kfb",
            "collect --estimate sample_logs/healthy/broker-1",
        ),
        {0: "the bundle is made", 2: _INPUTS, 3: "incomplete: some file could not be read; the bundle lists it"},
    ),
    "salvage": Manual(
        ("salvage sample_logs/healthy --topic orders --output salvaged",),
        {
            0: "every selected partition was salvaged",
            1: "every selected partition was salvaged, and a scan of the result has findings that no copy has (`new`)",
            2: f"{_INPUTS}, a directory for the output that holds anything, or no room for it",
            3: "incomplete: a partition was refused, or some input could not be read; the manifest has the reasons",
        },
    ),
    "export": Manual(
        ("export sample_logs/healthy --output facts --fact batches",),
        _SCANS | {2: f"{_INPUTS}, or a directory for the output that holds something else"},
    ),
    "report": Manual(
        (f"report {UNCLEAN} --output incident.html", "report sample_logs/healthy --hashes --output healthy.html"), _SCANS
    ),
    "explain": Manual(("explain", "explain UNCLEAN_LOSS", "explain KAFKA-1211"), _SIMPLE),
    "demo": Manual(
        (MAKE_SAMPLES,),
        {0: "the samples are written", 2: "wrong command line, a directory that holds anything, or no room for them"},
    ),
    "doctor": Manual(("doctor",), {0: "the local engine works, which needs neither Java nor Spark", 1: "it does not", 2: _USAGE}),
    "simulate": Manual(
        ("simulate list", "simulate run unclean-election"), {0: _RAN, 2: _USAGE, 3: "incomplete: see `simulate check`"}
    ),
    "simulate run": Manual(("simulate run unclean-election", "simulate run hw-lag-divergence --output made"), _SIMPLE),
    "simulate list": Manual(("simulate list",), _SIMPLE),
    "simulate check": Manual(
        ("simulate check kip-101 --replicas 2",),
        {
            0: "every history was checked, whether promises hold or not",
            2: _USAGE,
            3: "incomplete: the world was too large to finish",
        },
    ),
}
"""Command, such as `simulate run` → the end of its help; the empty name is the list of commands."""


def write_panels(command: "Command", context: "Context", formatter: "HelpFormatter") -> None:
    """Write the arguments, the options that most readers need, and the other options by panel."""
    panels: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", "Options", *PANELS)}
    for parameter in command.get_params(context):
        if (row := parameter.get_help_record(context)) is not None:
            first = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panels[getattr(parameter, "rich_help_panel", None) or first].append(row)
    for name, rows in panels.items():
        if rows:
            with formatter.section(name):
                formatter.write_dl(rows)


def write_commands(group: TyperGroup, context: "Context", formatter: "HelpFormatter") -> None:
    """Write the list of commands in sections, with descriptions in one column."""
    names = group.list_commands(context)
    width = max(map(len, names))
    sections: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        command = group.commands[name]
        row = (name.ljust(width), command.get_short_help_str(formatter.width))
        sections.setdefault(str(getattr(command, "rich_help_panel", None)), []).append(row)
    for heading, rows in sections.items():
        with formatter.section(heading):
            formatter.write_dl(rows)


def write_end(context: "Context", formatter: "HelpFormatter") -> None:
    """Write the examples and exit statuses of the command of `context`. An example stays on one line."""
    manual = MANUAL[context.command_path.partition(" ")[2]]
    needs_samples = context.parent is not None and any("sample_logs" in example for example in manual.examples)
    with formatter.section(f"Examples, after `{PROGRAM} {MAKE_SAMPLES}`" if needs_samples else "Examples"):
        for example in manual.examples:
            formatter.write(f"  {PROGRAM} {example}\n")
    with formatter.section("Exit status"):
        formatter.write_dl([(str(status), meaning) for status, meaning in manual.exit_statuses.items()])
