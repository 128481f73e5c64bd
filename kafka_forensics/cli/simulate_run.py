"""`simulate run` and `simulate list`: named histories of a small cluster, told step by step, drawn, written as log directories."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.choices import choose
from kafka_forensics.cli.streams import check_output, chosen_format, destination
from kafka_forensics.errors import UsageError

if TYPE_CHECKING:
    from kafka_forensics.cli.streams import Destination
    from kafka_forensics.simulation.history import History

TRUTH: Final = "truth.json"
LOG_DIRS: Final = "log-dirs"
"""Beside the truth, so that nothing foreign lies among the log directories."""
LIST_COLUMNS: Final = ("scenario", "protocols", "sentence")

ScenarioName = Annotated[
    str | None,
    typer.Argument(metavar="SCENARIO", autocompletion=lambda: scenario_names(), help="A name from `simulate list`."),
]
ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="How followers truncate: truncate-to-hw, kip-101, kip-279 or kip-320 [default: the scenario's own].",
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="DIR", help="Write log directories (DIR/log-dirs) and truth.json to DIR, which must be empty or new."
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option("--svg", metavar="FILE", parser=options.file_path, help="Draw the history to FILE, as SVG."),
]


def run(
    scenario: ScenarioName = None,
    protocol: ProtocolName = None,
    output: Directory = None,
    svg: Picture = None,
    format_name: options.Format = None,
    no_color: options.NoColor = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - read where errors end
) -> int:
    """Play a named history step by step: who did what, and each replica's log end, high watermark and epoch after it.

    With --output the end is written as real log directories, on which `scan` and `plan` find what truth.json says.
    Without a name the scenarios are listed.
    """
    if scenario is None:
        return list_scenarios(format_name, no_color=no_color)
    wanted = chosen_format(format_name, None)
    choose("scenario", scenario, scenario_names())

    from kafka_forensics.cli.notes import say
    from kafka_forensics.simulation.cluster import PROTOCOLS
    from kafka_forensics.simulation.scenarios import play

    chosen = None if protocol is None else next(one for one in PROTOCOLS if one == choose("protocol", protocol, PROTOCOLS))
    check_output(svg, [])
    if svg is not None and svg.suffix.lower() not in ("", ".svg"):
        hint = f"name it {svg.with_suffix('.svg')}; a browser or rsvg-convert makes other pictures of it"
        raise UsageError(f"{svg} would be no {svg.suffix[1:]} file: --svg draws SVG", hint=hint)
    if output is not None:
        _refuse_what_is_there(output)
    history = play(scenario, chosen)
    title = f"{scenario} under {history.cluster.protocol}"
    if svg is not None:
        _draw(history, title, svg)
    paths = [] if output is None else _write_tree(history, scenario, output)
    to = destination(sys.stdout, no_color=no_color)
    _write(history, scenario, wanted, to)
    sys.stdout.flush()
    if output is not None and not quiet:
        screen = destination(sys.stderr, no_color=no_color)
        say(screen, [f"wrote {len(paths)} log directories to {output / LOG_DIRS}, and {TRUTH} beside it"])
    return 0


def list_scenarios(format_name: options.Format = None, no_color: options.NoColor = False) -> int:
    """The named histories that `simulate run` plays: what happens in each, and under which protocols, its own first."""
    from kafka_forensics.cli.rows import write_rows
    from kafka_forensics.simulation.scenarios import SCENARIOS

    wanted = chosen_format(format_name, None)
    to = destination(sys.stdout, no_color=no_color)
    if wanted == "table":
        from kafka_forensics.cli.simulate_page import scenario_lines

        to.stream.writelines(scenario_lines(SCENARIOS.values(), to))
        return 0
    rows = (
        {"scenario": scenario.name, "protocols": list(scenario.protocols), "sentence": scenario.sentence}
        for scenario in SCENARIOS.values()
    )
    write_rows(LIST_COLUMNS, rows, wanted, to)
    return 0


def scenario_names() -> list[str]:
    """All scenarios, in the order of the list."""
    from kafka_forensics.simulation.scenarios import SCENARIOS

    return list(SCENARIOS)


def _write(history: "History", name: str, wanted: str, to: "Destination") -> None:
    from kafka_forensics.cli import simulate_page
    from kafka_forensics.cli.rows import write_rows

    if wanted == "table":
        to.stream.writelines(simulate_page.lines(history, name, to))
    else:
        write_rows(simulate_page.COLUMNS, simulate_page.rows(history, name), wanted, to)


def _draw(history: "History", title: str, path: Path) -> None:
    from kafka_forensics.simulation.picture import svg

    try:
        path.write_text(svg(history, title), encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from error


def _refuse_what_is_there(output: Path) -> None:
    """Raise UsageError unless `output` is an empty directory, or could be made one."""
    hint = "choose a directory that is empty or does not exist yet"
    if str(output) == "-":
        raise UsageError("--output - names no directory", hint=f"{hint}; the steps go to standard output without it")
    try:
        names = sorted(os.listdir(output))
    except FileNotFoundError:
        if not output.parent.is_dir():
            raise UsageError(f"cannot write to {output}: its directory does not exist") from None
        return
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}", hint=hint) from error
    if names:
        raise UsageError(f"{output} is not empty: it holds {names[0]}", hint=hint)


def _write_tree(history: "History", name: str, output: Path) -> list[Path]:
    """The log directories and the truth about them."""
    from kafka_forensics.simulation.materialise import materialise
    from kafka_forensics.simulation.truth import truth

    try:
        (output / LOG_DIRS).mkdir(parents=True)
        paths = materialise(history.cluster, output / LOG_DIRS, history.coordinator)
        text = json.dumps(truth(history, name), indent=1, ensure_ascii=True) + "\n"
        (output / TRUTH).write_text(text, encoding="ascii", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}") from error
    return paths
