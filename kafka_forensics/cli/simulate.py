"""`simulate`: replication protocols played through. `simulate check` looks at every history of a small world; named histories are
in `simulate_run`."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.choices import choose
from kafka_forensics.cli.simulate_run import list_scenarios, run
from kafka_forensics.cli.streams import check_output, chosen_format, destination, open_output

if TYPE_CHECKING:
    from kafka_forensics.cli.streams import Destination
    from kafka_forensics.simulation.checker import Checked, Verdict

COLUMNS: Final = (
    "protocol",
    "replicas",
    "log_size",
    "records",
    "max_epoch",
    "states",
    "depth",
    "complete",
    "invariant",
    "holds",
    "steps",
    "counterexample",
)
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


def check(
    protocol: Protocol,
    replicas: Replicas = 3,
    log_size: LogSize = 2,
    records: Records = 2,
    max_epoch: MaxEpoch = 2,
    format_name: options.Format = None,
    output: options.Output = None,
    cache_dir: options.CacheDir = None,
    no_color: options.NoColor = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - read where errors end
) -> int:
    """Every history of a replication protocol in a small world: which promises hold, and the shortest way to break each.

    A row for each invariant; `states` and `depth` are those of the whole search, states that differ only in replicas' names
    counted once. Ends with status 0 whatever is found, 2 for a wrong command line, 3 if the world was too large to finish.
    """
    wanted = chosen_format(format_name, output)
    check_output(output, [])
    choose("protocol", protocol, protocol_names())

    from kafka_forensics.cli.notes import say
    from kafka_forensics.evidence.options import keep_code_below
    from kafka_forensics.simulation import checker
    from kafka_forensics.simulation.model import PROTOCOLS, Sizes

    keep_code_below(cache_dir)
    screen = destination(sys.stderr, no_color=no_color)
    report = None if quiet else _reporter(screen)
    sizes = Sizes(replicas, log_size, records, max_epoch)
    checked = checker.check(PROTOCOLS[protocol], sizes, progress=report)
    with open_output(output, no_color=no_color) as to:
        _write(checked, wanted, to)
    if not checked.complete:
        say(screen, [f"incomplete: memory for {checked.states} states used up; the rest was not looked at"])
        return EXIT_INCOMPLETE
    return 0


def protocol_names() -> list[str]:
    """All protocols, oldest first."""
    from kafka_forensics.simulation.model import PROTOCOLS

    return list(PROTOCOLS)


def _reporter(screen: "Destination", clock: Callable[[], float] = time.monotonic) -> Callable[[int, int, int], None]:
    """Says every few seconds how far the search has come; there is no telling how much is left."""
    shown = [clock()]

    def report(known: int, waiting: int, depth: int) -> None:
        if clock() - shown[0] >= _LINE_EVERY_SECONDS:
            shown[0] = clock()
            screen.stream.write(f"{known} states, {waiting} of them still to visit, {depth} steps from the start\n")
            screen.stream.flush()

    return report


def _write(checked: "Checked", wanted: str, to: "Destination") -> None:
    from kafka_forensics.cli.rows import write_rows

    if wanted == "table":
        to.stream.writelines(line + "\n" for line in _page(checked))
    else:
        write_rows(COLUMNS, (_row(checked, verdict) for verdict in checked.verdicts), wanted, to)


def _row(checked: "Checked", verdict: "Verdict") -> dict[str, Any]:
    from kafka_forensics.simulation.checker import told

    sizes = checked.sizes
    return {
        "protocol": checked.protocol.name,
        "replicas": sizes.replicas,
        "log_size": sizes.log_size,
        "records": sizes.records,
        "max_epoch": sizes.max_epoch,
        "states": checked.states,
        "depth": checked.depth,
        "complete": checked.complete,
        "invariant": verdict.invariant,
        "holds": verdict.holds,
        "steps": len(verdict.trace) or None,
        "counterexample": [told(*step) for step in verdict.trace] or None,
    }


def _page(checked: "Checked") -> Iterator[str]:
    """What a person reads: the verdicts, then the shortest way to break the invariant that matters most."""
    from kafka_forensics.cli.output_words import plural

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


def _story(verdict: "Verdict") -> Iterator[str]:
    """The steps of a counterexample, then where every replica stands in the end."""
    from kafka_forensics.simulation.checker import isr_of, name_of, replica_in_words, told

    for number, (step, after) in enumerate(verdict.trace, 1):
        yield f"  {number:2}  {told(step, after)}"
    end = verdict.trace[-1][1]
    yield ""
    yield f"In the end the ISR is {isr_of(end.isr)}:"
    yield ""
    for replica in range(len(end.replicas)):
        yield f"  {name_of(replica)}  {replica_in_words(end, replica)}"


SUBCOMMANDS: Final[dict[str, tuple[Callable[..., int], str]]] = {
    "run": (run, "Play a named history; write it as log directories, or draw it."),
    "list": (list_scenarios, "List the named histories."),
    "check": (check, "Look at every history of a protocol; show how it breaks."),
}
"""Name → the function, and what the list of commands says of it."""
