"""`simulate`: play replication protocols through. `simulate check` explores every history of a small cluster; `simulate run` plays
a named one.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.options import EXIT_INCOMPLETE, choose
from kafka_forensics.cli.outputs.rows import write_items, write_rows
from kafka_forensics.cli.streams import Destination, destination, open_output, say, screen_of, writing_to
from kafka_forensics.errors import UsageError
from kafka_forensics.model.json_objects import Json, attributes, object_of

if TYPE_CHECKING:
    from kafka_forensics.simulation.checker import InvariantVerdict, ProtocolCheck
    from kafka_forensics.simulation.history import History


# `simulate run` and `simulate list`: named histories of a small cluster, printed step by step, drawn, written as log directories.


TRUTH: Final = "truth.json"
LOG_DIRS: Final = "log-dirs"
"""Next to truth.json: the log directories have no other files among them."""
LIST_COLUMNS: Final = attributes("scenario=name protocols message")

ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", autocompletion=lambda: scenario_names(), help="A name from `simulate list`.")
]
ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="How followers truncate: truncate-to-hw, kip-101, kip-279 or kip-320 [default: by scenario].",
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option("--output", metavar="DIR", help="Write log directories (DIR/log-dirs) and truth.json to DIR, empty or new."),
    options.OutputMark("new directory"),
]
Picture = Annotated[
    Path | None,
    typer.Option("--svg", metavar="FILE", parser=options.file_path, help="Draw the history as SVG."),
    options.OutputMark(),
]


@options.expand_option_groups
def run(
    scenario: ScenarioName,
    protocol: ProtocolName = None,
    output: Directory = None,
    svg: Picture = None,
    *,
    format_name: options.Format = "text",
    console: options.ConsoleOptions,
) -> int:
    """Play a history step by step: each action, and each replica's log end, high watermark and epoch after it.

    --output writes the final logs as log directories: `scan` and `plan` find in them what truth.json says.
    """
    choose("scenario", scenario, scenario_names())

    from kafka_forensics.cli.outputs import simulate
    from kafka_forensics.simulation.cluster import PROTOCOLS
    from kafka_forensics.simulation.scenarios import play

    if protocol is not None:
        choose("protocol", protocol, PROTOCOLS)
    if svg is not None and svg.suffix.lower() not in ("", ".svg"):
        hint = f"name it {svg.with_suffix('.svg')}; a browser or rsvg-convert makes other pictures of it"
        raise UsageError(f"{svg} would not be a {svg.suffix[1:]} file: --svg draws SVG", hint=hint)
    history = play(scenario, next((candidate for candidate in PROTOCOLS if candidate == protocol), None))
    if svg is not None:
        from kafka_forensics.simulation.picture import svg as draw

        with open_output(svg, color="never", option="--svg") as to:
            to.stream.write(draw(history, f"{scenario} under {history.cluster.protocol}"))
    log_dirs = 0 if output is None else _write_log_dirs(history, scenario, output)
    to = destination(sys.stdout, color=console.color)
    if format_name == "text":
        to.stream.writelines(simulate.lines(history, scenario, to))
    else:
        write_rows(simulate.COLUMNS, simulate.rows(history, scenario), format_name, to)
    sys.stdout.flush()
    if output is not None and not console.quiet:
        say(screen_of(console), [f"wrote {log_dirs} log directories to {output / LOG_DIRS}, and {TRUTH} next to it"])
    return 0


def _write_log_dirs(history: "History", scenario: str, output: Path) -> int:
    """Write the log directories and truth.json, and return the number of log directories. Raises UsageError."""
    from kafka_forensics.simulation.materialise import materialise
    from kafka_forensics.simulation.truth import truth

    with writing_to(output):
        (output / LOG_DIRS).mkdir(parents=True)
        log_dirs = materialise(history.cluster, output / LOG_DIRS, history.coordinator)
        text = json.dumps(truth(history, scenario), indent=1, ensure_ascii=True) + "\n"
        (output / TRUTH).write_text(text, encoding="ascii", newline="\n")
    return len(log_dirs)


def list_scenarios(format_name: options.Format = "text", color: options.Color = "auto") -> int:
    """List the histories that `simulate run` plays: what happens in each, and under which protocols."""
    from kafka_forensics.simulation.scenarios import SCENARIOS

    to = destination(sys.stdout, color=color)
    if format_name == "text":
        from kafka_forensics.cli.outputs.simulate import scenario_lines

        to.stream.writelines(scenario_lines(SCENARIOS.values(), to))
    else:
        write_items(LIST_COLUMNS, SCENARIOS.values(), format_name, to)
    return 0


def scenario_names() -> list[str]:
    """The names of all scenarios, in the order of the list."""
    from kafka_forensics.simulation.scenarios import SCENARIOS

    return list(SCENARIOS)


_CHECK_COLUMNS: Final = attributes(
    "protocol=protocol.name replicas=sizes.replicas log_size=sizes.log_size records=sizes.records max_epoch=sizes.max_epoch"
    " states depth complete"
)
COLUMNS: Final = (*_CHECK_COLUMNS, "invariant", "holds", "steps", "counterexample")
_SHOWN_INVARIANT: Final = "StrongIsr"
"""The invariant whose counterexample is shown, if it is broken."""
_LINE_EVERY_SECONDS: Final = 5.0

Protocol = Annotated[
    str,
    typer.Argument(
        metavar="PROTOCOL",
        autocompletion=lambda: protocol_names(),
        help="truncate-to-hw, kip-101, kip-279, kip-320-first-try or kip-320.",
    ),
]
Replicas = Annotated[int, typer.Option("--replicas", metavar="N", help="Replicas of the partition, 1 to 5.")]
LogSize = Annotated[int, typer.Option("--log-size", metavar="L", help="Records that fit in a log, 1 to 8.")]
Records = Annotated[int, typer.Option("--records", metavar="R", help="Records ever written, 1 to 8.")]
MaxEpoch = Annotated[int, typer.Option("--max-epoch", metavar="E", help="The last leader epoch, 0 to 8; the first is 0.")]


@options.expand_option_groups
def check(
    protocol: Protocol,
    replicas: Replicas = 3,
    log_size: LogSize = 2,
    records: Records = 2,
    max_epoch: MaxEpoch = 2,
    *,
    output: options.OutputOptions,
    cache_dir: options.CacheDir = None,
    console: options.ConsoleOptions,
) -> int:
    """Check every history of a replication protocol in a small world: which promises hold, and the shortest way to break each.

    Prints one row for each invariant. `states` and `depth` describe the whole search; states that differ only in the names of
    replicas count once.
    """
    format_name = output.chosen_format()
    choose("protocol", protocol, protocol_names())

    from kafka_forensics.evidence.options import keep_code_below
    from kafka_forensics.simulation import checker
    from kafka_forensics.simulation.model import PROTOCOLS, Sizes

    keep_code_below(cache_dir)
    screen = screen_of(console)
    report_progress = None if screen.quiet else _progress_lines(screen)
    checked = checker.check(PROTOCOLS[protocol], Sizes(replicas, log_size, records, max_epoch), progress=report_progress)
    with open_output(output.output, color=console.color) as to:
        if format_name == "text":
            to.stream.writelines(line + "\n" for line in _page(checked))
        else:
            write_rows(COLUMNS, (_row(checked, verdict) for verdict in checked.verdicts), format_name, to)
    if not checked.complete:
        say(screen, [f"incomplete: memory for {checked.states} states used up; the rest was not checked"])
        return EXIT_INCOMPLETE
    return 0


def protocol_names() -> list[str]:
    """The names of all protocols, oldest first."""
    from kafka_forensics.simulation.model import PROTOCOLS

    return list(PROTOCOLS)


def _progress_lines(screen: Destination) -> Callable[[int, int, int], None]:
    """A callback that prints the progress of the search every few seconds; the total is not known."""
    last_line = time.monotonic()

    def report(states: int, waiting: int, depth: int) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= _LINE_EVERY_SECONDS:
            last_line = time.monotonic()
            screen.stream.write(f"{states} states, {waiting} of them still to visit, {depth} steps from the start\n")
            screen.stream.flush()

    return report


def _row(checked: "ProtocolCheck", verdict: "InvariantVerdict") -> Json:
    from kafka_forensics.simulation.checker import step_text

    return {
        **object_of(_CHECK_COLUMNS, checked),
        "invariant": verdict.invariant,
        "holds": verdict.holds,
        "steps": len(verdict.trace) or None,
        "counterexample": [step_text(*step) for step in verdict.trace] or None,
    }


def _page(checked: "ProtocolCheck") -> Iterator[str]:
    """The lines for a person: the verdicts, then the shortest counterexample of the most important broken invariant."""
    from kafka_forensics.model.amounts import plural

    sizes = checked.sizes
    yield (
        f"{checked.protocol.name}: {checked.states} states, depth {checked.depth} ({sizes.replicas} replicas,"
        f" logs of size {sizes.log_size}, {plural(sizes.records, 'record')}, epochs 0 to {sizes.max_epoch})"
    )
    yield ""
    width = max(len(verdict.invariant) for verdict in checked.verdicts)
    for verdict in checked.verdicts:
        text = "holds" if verdict.holds else "not broken in the checked part"
        if verdict.holds is False:
            text = f"broken in {len(verdict.trace)} steps"
        yield f"  {verdict.invariant.ljust(width)}  {text}"
    broken = [verdict for verdict in checked.verdicts if verdict.holds is False]
    if broken:
        yield from _counterexample(min(broken, key=lambda verdict: (verdict.invariant != _SHOWN_INVARIANT, len(verdict.trace))))


def _counterexample(verdict: "InvariantVerdict") -> Iterator[str]:
    """The steps of a counterexample, and the state of each replica after them."""
    from kafka_forensics.simulation.checker import isr_text, name_of, replica_text, step_text

    yield from ("", f"The shortest way to break {verdict.invariant}:", "")
    for number, (step, after) in enumerate(verdict.trace, 1):
        yield f"  {number:2}  {step_text(step, after)}"
    end = verdict.trace[-1][1]
    yield from ("", f"In the end the ISR is {isr_text(end.isr)}:", "")
    for replica in range(len(end.replicas)):
        yield f"  {name_of(replica)}  {replica_text(end, replica)}"


SUBCOMMANDS: Final[dict[str, tuple[Callable[..., int], str]]] = {
    "run": (run, "Play a named history; write it as log directories, or draw it."),
    "list": (list_scenarios, "List the named histories."),
    "check": (check, "Look at every history of a protocol; show how it breaks."),
}
"""Name → the function, and what the list of commands says of it."""
