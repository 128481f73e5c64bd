"""`simulate`: replication protocols played through. `simulate check` looks at every history of a small world; named histories are
in `simulate_run`.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.outputs.rows import write_items, write_rows
from kafka_forensics.cli.streams import Destination, chosen_format, destination, open_output, say
from kafka_forensics.errors import UsageError
from kafka_forensics.model.json_objects import Json, attributes, object_of
from kafka_forensics.storage.disks import why

if TYPE_CHECKING:
    from kafka_forensics.simulation.checker import InvariantVerdict, ProtocolCheck
    from kafka_forensics.simulation.history import History


# `simulate run` and `simulate list`: named histories of a small cluster, told step by step, drawn, written as log directories.


TRUTH: Final = "truth.json"
LOG_DIRS: Final = "log-dirs"
"""Beside the truth, so that nothing foreign lies among the log directories."""
LIST_COLUMNS: Final = attributes("scenario=name protocols sentence")

ScenarioName = Annotated[
    str,
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
    options.Written("new directory"),
]
Picture = Annotated[
    Path | None,
    typer.Option("--svg", metavar="FILE", parser=options.file_path, help="Draw the history to FILE, as SVG."),
    options.Written(),
]


@options.flat
def run(
    scenario: ScenarioName,
    protocol: ProtocolName = None,
    output: Directory = None,
    svg: Picture = None,
    format_name: options.Format = None,
    color: options.Color = "auto",
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - read where errors end
) -> int:
    """Play a named history step by step: who did what, and each replica's log end, high watermark and epoch after it.

    With --output the end is written as real log directories, on which `scan` and `plan` find what truth.json says.
    """
    wanted = chosen_format(format_name, None)
    choose("scenario", scenario, scenario_names())

    from kafka_forensics.simulation.cluster import PROTOCOLS
    from kafka_forensics.simulation.scenarios import play

    chosen = (
        None
        if protocol is None
        else next(candidate for candidate in PROTOCOLS if candidate == choose("protocol", protocol, PROTOCOLS))
    )
    if svg is not None and svg.suffix.lower() not in ("", ".svg"):
        hint = f"name it {svg.with_suffix('.svg')}; a browser or rsvg-convert makes other pictures of it"
        raise UsageError(f"{svg} would be no {svg.suffix[1:]} file: --svg draws SVG", hint=hint)
    history = play(scenario, chosen)
    title = f"{scenario} under {history.cluster.protocol}"
    if svg is not None:
        _draw(history, title, svg)
    paths = [] if output is None else _write_tree(history, scenario, output)
    to = destination(sys.stdout, color=color)
    _write_history(history, scenario, wanted, to)
    sys.stdout.flush()
    if output is not None and not quiet:
        screen = destination(sys.stderr, color=color)
        say(screen, [f"wrote {len(paths)} log directories to {output / LOG_DIRS}, and {TRUTH} beside it"])
    return 0


def list_scenarios(format_name: options.Format = None, color: options.Color = "auto") -> int:
    """The named histories that `simulate run` plays: what happens in each, and under which protocols, its own first."""
    from kafka_forensics.simulation.scenarios import SCENARIOS

    wanted = chosen_format(format_name, None)
    to = destination(sys.stdout, color=color)
    if wanted == "table":
        from kafka_forensics.cli.outputs.simulate import scenario_lines

        to.stream.writelines(scenario_lines(SCENARIOS.values(), to))
        return 0
    write_items(LIST_COLUMNS, SCENARIOS.values(), wanted, to)
    return 0


def scenario_names() -> list[str]:
    """All scenarios, in the order of the list."""
    from kafka_forensics.simulation.scenarios import SCENARIOS

    return list(SCENARIOS)


def _write_history(history: "History", name: str, wanted: str, to: Destination) -> None:
    from kafka_forensics.cli.outputs import simulate

    if wanted == "table":
        to.stream.writelines(simulate.lines(history, name, to))
    else:
        write_rows(simulate.COLUMNS, simulate.rows(history, name), wanted, to)


def _draw(history: "History", title: str, path: Path) -> None:
    from kafka_forensics.simulation.picture import svg

    with open_output(path, color="never", option="--svg") as to:
        to.stream.write(svg(history, title))


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
        raise UsageError(f"cannot write to {output}: {why(error, str(output))}", hint="choose another directory") from error
    return paths


_CHECKED: Final = attributes(
    "protocol=protocol.name replicas=sizes.replicas log_size=sizes.log_size records=sizes.records max_epoch=sizes.max_epoch"
    " states depth complete"
)
COLUMNS: Final = (*_CHECKED, "invariant", "holds", "steps", "counterexample")
EXIT_INCOMPLETE: Final = 3
_TOLD_FIRST: Final = "StrongIsr"
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
LogSize = Annotated[int, typer.Option("--log-size", metavar="L", help="Records a log has room for, 1 to 8.")]
Records = Annotated[int, typer.Option("--records", metavar="R", help="Records ever written, 1 to 8.")]
MaxEpoch = Annotated[int, typer.Option("--max-epoch", metavar="E", help="The last leader epoch, 0 to 8; the first is 0.")]


@options.flat
def check(
    protocol: Protocol,
    replicas: Replicas = 3,
    log_size: LogSize = 2,
    records: Records = 2,
    max_epoch: MaxEpoch = 2,
    format_name: options.Format = None,
    output: options.Output = None,
    cache_dir: options.CacheDir = None,
    color: options.Color = "auto",
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - read where errors end
) -> int:
    """Every history of a replication protocol in a small world: which promises hold, and the shortest way to break each.

    A row for each invariant; `states` and `depth` are those of the whole search, states that differ only in replicas' names
    counted once.
    """
    wanted = chosen_format(format_name, output)
    choose("protocol", protocol, protocol_names())

    from kafka_forensics.evidence.options import keep_code_below
    from kafka_forensics.simulation import checker
    from kafka_forensics.simulation.model import PROTOCOLS, Sizes

    keep_code_below(cache_dir)
    screen = destination(sys.stderr, color=color)
    report = None if quiet else _reporter(screen)
    sizes = Sizes(replicas, log_size, records, max_epoch)
    checked = checker.check(PROTOCOLS[protocol], sizes, progress=report)
    with open_output(output, color=color) as to:
        _write(checked, wanted, to)
    if not checked.complete:
        say(screen, [f"incomplete: memory for {checked.states} states used up; the rest was not looked at"])
        return EXIT_INCOMPLETE
    return 0


def protocol_names() -> list[str]:
    """All protocols, oldest first."""
    from kafka_forensics.simulation.model import PROTOCOLS

    return list(PROTOCOLS)


def _reporter(screen: Destination, clock: Callable[[], float] = time.monotonic) -> Callable[[int, int, int], None]:
    """Says every few seconds how far the search has come; there is no telling how much is left."""
    shown = [clock()]

    def report(known: int, waiting: int, depth: int) -> None:
        if clock() - shown[0] >= _LINE_EVERY_SECONDS:
            shown[0] = clock()
            screen.stream.write(f"{known} states, {waiting} of them still to visit, {depth} steps from the start\n")
            screen.stream.flush()

    return report


def _write(checked: "ProtocolCheck", wanted: str, to: Destination) -> None:
    if wanted == "table":
        to.stream.writelines(line + "\n" for line in _page(checked))
    else:
        write_rows(COLUMNS, (_row(checked, verdict) for verdict in checked.verdicts), wanted, to)


def _row(checked: "ProtocolCheck", verdict: "InvariantVerdict") -> Json:
    from kafka_forensics.simulation.checker import step_text

    return {
        **object_of(_CHECKED, checked),
        "invariant": verdict.invariant,
        "holds": verdict.holds,
        "steps": len(verdict.trace) or None,
        "counterexample": [step_text(*step) for step in verdict.trace] or None,
    }


def _page(checked: "ProtocolCheck") -> Iterator[str]:
    """What a person reads: the verdicts, then the shortest way to break the invariant that matters most."""
    from kafka_forensics.model.amounts import plural

    sizes = checked.sizes
    records = plural(sizes.records, "record")
    yield (
        f"{checked.protocol.name}: {checked.states} states, depth {checked.depth}"
        f" ({sizes.replicas} replicas, logs of size {sizes.log_size}, {records}, epochs 0 to {sizes.max_epoch})"
    )
    yield ""
    words = {True: "holds", None: "not broken as far as was looked"}
    width = max(len(verdict.invariant) for verdict in checked.verdicts)
    for verdict in checked.verdicts:
        said = words[verdict.holds] if verdict.holds is not False else f"broken in {len(verdict.trace)} steps"
        yield f"  {verdict.invariant.ljust(width)}  {said}"
    broken = [verdict for verdict in checked.verdicts if verdict.holds is False]
    if broken:
        first = next(
            (verdict for verdict in broken if verdict.invariant == _TOLD_FIRST), min(broken, key=lambda verdict: len(verdict.trace))
        )
        yield ""
        yield f"The shortest way to break {first.invariant}:"
        yield ""
        yield from _story(first)


def _story(verdict: "InvariantVerdict") -> Iterator[str]:
    """The steps of a counterexample, then where every replica stands in the end."""
    from kafka_forensics.simulation.checker import isr_text, name_of, replica_text, step_text

    for number, (step, after) in enumerate(verdict.trace, 1):
        yield f"  {number:2}  {step_text(step, after)}"
    end = verdict.trace[-1][1]
    yield ""
    yield f"In the end the ISR is {isr_text(end.isr)}:"
    yield ""
    for replica in range(len(end.replicas)):
        yield f"  {name_of(replica)}  {replica_text(end, replica)}"


SUBCOMMANDS: Final[dict[str, tuple[Callable[..., int], str]]] = {
    "run": (run, "Play a named history; write it as log directories, or draw it."),
    "list": (list_scenarios, "List the named histories."),
    "check": (check, "Look at every history of a protocol; show how it breaks."),
}
"""Name → the function, and what the list of commands says of it."""
