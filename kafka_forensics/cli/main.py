"""The entry point: the list of commands, and the one place where errors become a line on stderr and an exit status.

A new command is a module in `cli/commands` and a line in `COMMANDS`. A command returns its exit status as an int and raises the
errors of `kafka_forensics.errors`; it never catches what it cannot mend.
"""

import contextlib
import errno
import gc
import os
import select
import signal
import stat
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from kafka_forensics.cli.commands.changes import changes
from kafka_forensics.cli.commands.collect import collect
from kafka_forensics.cli.commands.compare import compare
from kafka_forensics.cli.commands.demo import demo
from kafka_forensics.cli.commands.doctor import doctor, version_lines
from kafka_forensics.cli.commands.dump import dump
from kafka_forensics.cli.commands.epochs import epochs
from kafka_forensics.cli.commands.explain import explain
from kafka_forensics.cli.commands.export import export
from kafka_forensics.cli.commands.find import find
from kafka_forensics.cli.commands.groups import groups
from kafka_forensics.cli.commands.metadata import metadata
from kafka_forensics.cli.commands.plan import plan
from kafka_forensics.cli.commands.recover import recover
from kafka_forensics.cli.commands.report import report
from kafka_forensics.cli.commands.salvage import salvage
from kafka_forensics.cli.commands.scan import scan
from kafka_forensics.cli.commands.simulate import SUBCOMMANDS as SIMULATE
from kafka_forensics.cli.commands.transactions import transactions
from kafka_forensics.cli.commands.verify import verify
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import destination, logging_to, printable, say
from kafka_forensics.errors import ForensicsError, UsageError, nearest
from kafka_forensics.scanning.engine.garbage import OBJECTS_BETWEEN

if TYPE_CHECKING:
    from typer._click.core import (
        Command as AnyCommand,  # its parser, whose place is another in other versions
        Context,
        Parameter,
    )
    from typer._click.formatting import HelpFormatter

PROGRAM: Final = "kafka-forensics"
COMMANDS: Final[dict[str, tuple[Callable[..., int], str]]] = {
    "scan": (scan, "Find what is wrong, where, and what was lost."),
    "compare": (compare, "Show replicas side by side around their first difference."),
    "changes": (changes, "Show what became of each replica from one snapshot to the next."),
    "dump": (dump, "Show what is in a file or directory: batches, records, entries, damage."),
    "epochs": (epochs, "Show leader epochs: checkpoints against batches and the controller's history."),
    "find": (find, "Find which replicas hold a record."),
    "groups": (groups, "Show what groups committed, against the logs, and what readers cannot see yet."),
    "metadata": (metadata, "Show who led each partition and who was in sync, since when."),
    "plan": (plan, "Plan elections: what each would cut and lose, whom to elect, and how."),
    "verify": (verify, "Say whether what a plan or a salvage promised has come true."),
    "recover": (recover, "Write the records that only losing copies hold, to be produced again."),
    "transactions": (transactions, "List transactions, and say what holds the last stable offset."),
    "collect": (collect, "Take facts of a broker's logs into one small file, to be judged anywhere."),
    "salvage": (salvage, "Write log directories on which brokers start, from the best of all copies."),
    "export": (export, "Write every fact and finding as Parquet datasets."),
    "report": (report, "Write one HTML page about an incident, to be sent to people."),
    "explain": (explain, "Say what a finding means and what to do about it."),
    "demo": (demo, "Write sample log directories, and say what to run on them."),
    "doctor": (doctor, "Check this installation."),
}
"""Name → the function, and what the list of commands says of it."""
GROUPS: Final[dict[str, tuple[dict[str, tuple[Callable[..., int], str]], str]]] = {
    "simulate": (SIMULATE, "Play replication protocols through."),
}
"""Name → commands of its own, and what the list of commands says of them."""

EXIT_USAGE: Final = 2
EXIT_INCOMPLETE: Final = 3
EXIT_BUG: Final = 70
EXIT_INTERRUPTED: Final = 130
EXIT_CLOSED_PIPE: Final = 141
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_COMMAND_LINE_ERROR: Final = typer.BadParameter.__mro__[2]
"""The parser's base of all complaints about a command line; it has no public name in every version."""


class Commands(TyperGroup):
    """The group of commands, which knows what a mistyped one was meant to be."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """Names in the order of the tables above."""
        return sorted(super().list_commands(ctx), key=lambda name: name in GROUPS)

    def resolve_command(self, ctx: "Context", args: list[str]) -> "tuple[str | None, AnyCommand | None, list[str]]":
        """Find the command named by the first argument. Raises UsageError if there is none."""
        if not ctx.resilient_parsing and not args[0].startswith("-"):
            if args[0] == "help":
                hint = f"`{PROGRAM} --help` lists the commands, `{PROGRAM} scan --help` shows one"
                raise UsageError("there is no command 'help'", hint=hint)
            choose("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the end of the help."""
        from kafka_forensics.cli.manual import write_end

        write_end(ctx, formatter)


def _require_one_of(option: "Parameter", args: list[str]) -> None:
    """Raise UsageError where an option that is on or off, such as `--whole/--partial`, was given both ways."""
    words = args[: args.index("--")] if "--" in args else args
    both = [next((name for name in names if name in words), None) for names in (option.opts, option.secondary_opts)]
    if None not in both:
        raise UsageError(f"{both[0]} and {both[1]} contradict each other", hint="give one of them")


class Command(TyperCommand):
    """A command that takes no option twice which can have one value: the parser would forget the first in silence."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse the command line into `ctx`. Raises UsageError for an option given twice, and what the parser raises."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for number, parameter in enumerate(order):
                several = (
                    getattr(parameter, "multiple", True)
                    or getattr(parameter, "is_flag", False)
                    or getattr(parameter, "count", False)
                )
                if parameter.param_type_name == "option" and not several and parameter in order[:number]:
                    pattern = "one pattern may match several, such as 'a*'" if parameter.metavar == "GLOB" else "it takes one value"
                    raise UsageError(f"{parameter.opts[0]} was given twice", hint=f"{pattern}; else run the command once for each")
                _require_one_of(parameter, args)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the end of the help."""
        from kafka_forensics.cli.manual import write_end

        write_end(ctx, formatter)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(*version_lines(), sep="\n")  # noqa: T201 - the answer
        raise typer.Exit


def root(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version, and those of what it works with."
        ),
    ] = False,
) -> int:
    """Read Kafka log directories copied from several brokers: where replicas part, what was lost, which copy to keep.

    Nothing is ever written to the directories that are read. Start with `kafka-forensics scan PATH...`.
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), file=sys.stderr)  # noqa: T201 - a hint, not data
        return EXIT_USAGE
    return 0


def build_app() -> typer.Typer:
    """The command line as a typer application."""
    app = typer.Typer(
        name=PROGRAM,
        cls=Commands,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(root)
    for name, (command, short_help) in COMMANDS.items():
        app.command(name, cls=Command, short_help=short_help)(command)
    for name, (commands, short_help) in GROUPS.items():
        group = typer.Typer(cls=Commands, rich_markup_mode=None)
        group.callback()(lambda: None)
        for own_name, (command, own_help) in commands.items():
            group.command(own_name, cls=Command, short_help=own_help)(command)
        app.add_typer(group, name=name, help=short_help)
    return app


def parser() -> "AnyCommand":
    """The command line as this process parses it: all commands, with their options, below one."""
    return _without_types(typer.main.get_command(build_app()))


def _without_types(command: "AnyCommand") -> "AnyCommand":
    """`command` and those below it, whose help calls an argument PATH, and not also by the type it has in this program."""
    for param in command.params:
        if param.param_type_name == "argument":
            vars(param).update(display_type_rich=lambda **_: None)
    for inner in getattr(command, "commands", {}).values():
        _without_types(inner)
    return command


def run(ready: Callable[[], object] = int) -> NoReturn:
    """Run the command line of this process and end it with the exit status; `ready` is called when interruptions are caught.

    At once: taking numpy, LLVM and their threads apart in good order takes longer than many a command. Nothing is open by then.
    """
    gc.set_threshold(OBJECTS_BETWEEN)
    status = outcome(sys.argv[1:], ready)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def outcome(arguments: list[str], ready: Callable[[], object] = int) -> int:
    """Run one command line; its exit status. Says on stderr, in one line, what went wrong. `ready` as in `run`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not know every letter
    with logging_to(destination(sys.stderr, color="never"), "WARNING"):
        return _outcome(arguments, ready)


def _outcome(arguments: list[str], ready: Callable[[], object]) -> int:
    debug = "--debug" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    stdout = sys.stdout
    try:
        ready()
        status = parser().main(arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()  # a closed pipe shows here at the latest
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        sys.stdout = stdout  # typer ends with 1 for any broken pipe, and covers stdout
        return _status_of(end.__context__, arguments, debug=debug)
    except BaseException as error:  # noqa: BLE001 - the top level: every error ends here, as a line and a status
        return _status_of(error, arguments, debug=debug)
    if status == EXIT_INTERRUPTED:
        _say("interrupted")
    return status if isinstance(status, int) else 0


def _say_where(error: BaseException) -> None:
    """The stack of an error, whose lines may hold names from evidence."""
    for line in traceback.format_exception(error) if not isinstance(error, _COMMAND_LINE_ERROR) else ():
        _say(*line.rstrip("\n").split("\n"))


def _status_of(error: BaseException, arguments: list[str], *, debug: bool) -> int:
    """The exit status that `error` means; the user is told on stderr, unless the reader of our output went away."""
    if debug:
        _say_where(error)
    if isinstance(error, ForensicsError):
        _tell(f"error: {error}", *([f"hint: {error.hint}"] if error.hint else []))
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_INCOMPLETE
    if isinstance(error, _COMMAND_LINE_ERROR):
        hint = _meant(error)
        _tell(
            f"error: {_sentence(error)}",
            f"hint: {hint or f'`{_command_path(error, arguments)} --help` shows how it is used'}",
        )
        return EXIT_USAGE
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _say("interrupted")
        return EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError) and _reader_is_gone():
        return EXIT_CLOSED_PIPE
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        _tell(f"error: cannot write to standard output: {_why_not(error)}")
        return EXIT_USAGE
    _tell(f"bug: {type(error).__name__}: {error}" + ("" if debug else "; run again with --debug for the traceback"))
    return EXIT_BUG


def _why_not(error: OSError) -> str:
    """Why nothing could be written to standard output; of a file, on which disk it is, too."""
    said = str(error.strerror).lower()
    if not stat.S_ISREG(os.fstat(1).st_mode):
        return said
    from kafka_forensics.storage.disks import mounted_disk

    try:
        return f"{said}: {mounted_disk(os.readlink('/proc/self/fd/1'))}"
    except OSError:
        return said


def _meant(error: BaseException) -> str | None:
    """The option that an unknown one was probably meant to be; None if none is like it."""
    names = {str(option).lstrip("-"): str(option) for option in getattr(error, "possibilities", None) or ()}
    near = nearest(str(getattr(error, "option_name", "")).lstrip("-"), names)
    return f"did you mean {names[near]}?" if near else None


def _sentence(error: BaseException) -> str:
    text = str(getattr(error, "format_message", lambda: error)())
    if getattr(error, "option_name", None) is not None and getattr(error, "possibilities", None):
        text = str(getattr(error, "message", text))  # without them all: the hint names the nearest
    return (text[:1].lower() + text[1:]).rstrip(".")


def _command_path(error: BaseException, arguments: list[str]) -> str:
    """The command whose line was wrong; an option without its value comes without a context, so the command is the first word."""
    context = getattr(error, "ctx", None)
    if context is not None:
        return str(context.command_path)
    return " ".join([PROGRAM, *(word for word in arguments[:1] if word in COMMANDS)])


def _reader_is_gone() -> bool:
    """Whether stdout or stderr is a pipe that nobody reads; stdout then goes nowhere, so that ending stays silent."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return True


def _tell(*lines: str) -> None:
    """Lines for stderr in the columns of a terminal; lost in silence if nobody can read them."""

    with contextlib.suppress(OSError):
        say(destination(sys.stderr, color="never"), lines)


def _say(*lines: str) -> None:
    """Lines for stderr as they are, but safe for a terminal; lost in silence if nobody can read them."""
    try:
        for line in lines:
            sys.stderr.write(printable(line) + "\n")
        sys.stderr.flush()
    except OSError:
        return
