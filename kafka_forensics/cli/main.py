"""The entry point: the list of commands, and the only place that turns errors into a line on standard error and an exit status.

A new command is a module in `cli/commands` and a line in `SECTIONS`. A command returns its exit status as an int and raises the
errors of `kafka_forensics.errors`; it catches only errors that it can handle.
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
from kafka_forensics.cli.options import EXIT_INCOMPLETE, EXIT_INTERRUPTED, PROGRAM, choose
from kafka_forensics.cli.streams import destination, say, warnings_to
from kafka_forensics.errors import ForensicsError, UsageError, nearest
from kafka_forensics.model.safe_text import printable
from kafka_forensics.scanning.engine.garbage import OBJECTS_BETWEEN

if TYPE_CHECKING:
    from typer._click.core import Command as AnyCommand, Context, Parameter  # elsewhere in other versions of typer
    from typer._click.formatting import HelpFormatter

CommandTable = dict[str, tuple[Callable[..., int], str]]
"""Name → the function, and its description in the list of commands."""

SECTIONS: Final[dict[str, CommandTable]] = {
    "Judge": {
        "scan": (scan, "Find what is wrong, where, and what was lost."),
        "transactions": (transactions, "List transactions, and what holds the last stable offset."),
        "groups": (groups, "Show committed offsets, and why consumers do not advance."),
        "changes": (changes, "Show what happened to each replica between snapshots."),
    },
    "Look closer": {
        "compare": (compare, "Show replicas side by side around their first difference."),
        "metadata": (metadata, "Show who led each partition and who was in sync."),
        "epochs": (epochs, "Show leader epochs of each replica."),
        "find": (find, "Find which replicas hold a record."),
        "dump": (dump, "Show what is in a file: batches, records, entries."),
    },
    "Repair": {
        "plan": (plan, "Show what each election loses, and which broker to elect."),
        "recover": (recover, "Write the lost records to files, to produce them again."),
        "salvage": (salvage, "Write log directories from the best of all copies."),
        "verify": (verify, "Check that a plan or a salvage was carried out."),
    },
    "Collect and share": {
        "collect": (collect, "Write a broker's facts to one small file, to judge elsewhere."),
        "report": (report, "Write one HTML page about an incident."),
        "export": (export, "Write every fact and finding as Parquet files."),
    },
    "Learn": {
        "explain": (explain, "Explain a finding, and what to do about it."),
        "demo": (demo, "Write sample log directories."),
        "doctor": (doctor, "Check this installation."),
    },
}
"""Heading → its commands, in the order of the list of commands and of docs/commands.md."""
COMMANDS: Final[CommandTable] = {name: row for commands in SECTIONS.values() for name, row in commands.items()}
GROUPS: Final[dict[str, tuple[CommandTable, str]]] = {"simulate": (SIMULATE, "Play or check replication protocols.")}
"""Name → its commands, and its description in the last section of the list of commands."""

EXIT_USAGE: Final = 2
EXIT_BUG: Final = 70
EXIT_CLOSED_PIPE: Final = 141
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_COMMAND_LINE_ERROR: Final = typer.BadParameter.__mro__[2]
"""The base class of all errors in a command line; it has no public name in every version of typer."""


def _write_options(self: "AnyCommand", ctx: "Context", formatter: "HelpFormatter") -> None:
    """Write the arguments and options of a command's help, in panels."""
    from kafka_forensics.cli.manual import write_panels

    write_panels(self, ctx, formatter)


def _write_epilog(_: object, ctx: "Context", formatter: "HelpFormatter") -> None:
    """Write the end of a command's help: examples and exit statuses."""
    from kafka_forensics.cli.manual import write_end

    write_end(ctx, formatter)


class Commands(TyperGroup):
    """The group of commands, which proposes the nearest name for a mistyped one."""

    format_epilog = _write_epilog

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the list of commands, in sections, and the options."""
        from kafka_forensics.cli.manual import write_commands, write_panels

        write_commands(self, ctx, formatter)
        write_panels(self, ctx, formatter)

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


def _require_no_contradiction(option: "Parameter", arguments: list[str]) -> None:
    """Raise UsageError if the command line turns an option both on and off, such as `--whole --partial`."""
    used = [next((name for name in names if name in arguments), None) for names in (option.opts, option.secondary_opts)]
    if None not in used:
        raise UsageError(f"{used[0]} and {used[1]} contradict each other", hint="give one of them")


def _before_separator(arguments: list[str]) -> list[str]:
    """The arguments before `--`, the only ones that can be options."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


class Command(TyperCommand):
    """A command that refuses an option with one value if it is given twice: typer would ignore the first value silently."""

    format_options = _write_options
    format_epilog = _write_epilog

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse the command line into `ctx`. Raises UsageError for an option given twice, and the parser's errors."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for number, parameter in enumerate(order):
                # arguments have none of these attributes
                repeatable = any(getattr(parameter, name, name == "multiple") for name in ("multiple", "is_flag", "count"))
                if parameter.param_type_name == "option" and not repeatable and parameter in order[:number]:
                    pattern = "one pattern may match several, such as 'a*'" if parameter.metavar == "GLOB" else "it takes one value"
                    raise UsageError(f"{parameter.opts[0]} was given twice", hint=f"{pattern}; else run the command once for each")
                _require_no_contradiction(parameter, _before_separator(args))
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


def _print_version(requested: bool) -> None:
    if requested:
        print(*version_lines(), sep="\n")  # noqa: T201 - the answer
        raise typer.Exit


def root(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the versions of this tool and its libraries."),
    ] = False,
) -> int:
    """Read copies of Kafka log directories: which replicas differ, what was lost, which copy to keep.

    Never writes to the directories that it reads. Start with `kafka-forensics scan PATH...`.
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
    for section, commands in SECTIONS.items():
        _add_commands(app, commands, section)
    for name, (commands, short_help) in GROUPS.items():
        group = typer.Typer(cls=Commands, rich_markup_mode=None)
        group.callback()(lambda: None)
        _add_commands(group, commands, "Commands")
        app.add_typer(group, name=name, help=short_help, rich_help_panel=section)
    return app


def _add_commands(app: typer.Typer, commands: CommandTable, section: str) -> None:
    for name, (command, short_help) in commands.items():
        app.command(name, cls=Command, short_help=short_help, rich_help_panel=section)(command)


def parser() -> "AnyCommand":
    """The parser of the command line: the group of all commands, with their options."""
    return _without_types(typer.main.get_command(build_app()))


def _without_types(command: "AnyCommand") -> "AnyCommand":
    """`command` and its subcommands, with the help of an argument showing its metavar only, and not also its Python type."""
    for param in command.params:
        if param.param_type_name == "argument":
            vars(param).update(display_type_rich=lambda **_: None)
    for subcommand in getattr(command, "commands", {}).values():
        _without_types(subcommand)
    return command


def run(on_ready: Callable[[], object] = int) -> NoReturn:
    """Run the command line of this process and exit with its status; call `on_ready` once interruptions are handled.

    `os._exit`, because unloading numpy, LLVM and their threads takes longer than many a command. No file is open then.
    """
    gc.set_threshold(OBJECTS_BETWEEN)
    status = outcome(sys.argv[1:], on_ready)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all output is written
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def outcome(arguments: list[str], on_ready: Callable[[], object] = int) -> int:
    """Run one command line and return its exit status. An error is one line on standard error. `on_ready` as in `run`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not support every letter
    with warnings_to(destination(sys.stderr, color="never")):
        return _outcome(arguments, on_ready)


def _outcome(arguments: list[str], on_ready: Callable[[], object]) -> int:
    debug = "--debug" in _before_separator(arguments)
    stdout = sys.stdout
    try:
        on_ready()
        status = parser().main(arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()  # a closed pipe raises here at the latest
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        sys.stdout = stdout  # typer exits with 1 for any broken pipe, and replaces stdout
        return _report_error(end.__context__, arguments, debug=debug)
    except BaseException as error:  # noqa: BLE001 - the top level: every error ends here, as a line and a status
        return _report_error(error, arguments, debug=debug)
    if status == EXIT_INTERRUPTED:
        _print_messages("interrupted")
    return status if isinstance(status, int) else 0


def _report_error(error: BaseException, arguments: list[str], *, debug: bool) -> int:
    """Print the message of an error, unless the reader of our output has exited; the exit status."""
    if debug and not isinstance(error, _COMMAND_LINE_ERROR):
        _print_traceback(error)
    if isinstance(error, ForensicsError):
        _print_messages(f"error: {error}", *([f"hint: {error.hint}"] if error.hint else []))
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_INCOMPLETE
    if isinstance(error, _COMMAND_LINE_ERROR):
        hint = _nearest_option(error) or f"`{_command_path(error, arguments)} --help` shows how it is used"
        _print_messages(f"error: {_sentence(error)}", f"hint: {hint}")
        return EXIT_USAGE
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _print_messages("interrupted")
        return EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError) and _reader_has_closed():
        return EXIT_CLOSED_PIPE
    if isinstance(error, OSError) and error.filename is None and error.errno in _DISK_FULL:
        _print_messages(f"error: cannot write to standard output: {_stdout_failure(error)}")
        return EXIT_USAGE
    _print_messages(f"bug: {type(error).__name__}: {error}" + ("" if debug else "; run again with --debug for the traceback"))
    return EXIT_BUG


def _stdout_failure(error: OSError) -> str:
    """Why standard output cannot be written; if it is a file, also on which disk it is."""
    reason = str(error.strerror).lower()
    if not stat.S_ISREG(os.fstat(1).st_mode):
        return reason
    from kafka_forensics.storage.disks import mounted_disk

    try:
        return f"{reason}: {mounted_disk(os.readlink('/proc/self/fd/1'))}"
    except OSError:
        return reason


def _nearest_option(error: BaseException) -> str | None:
    """A question for the option with the name nearest to an unknown one; None if no name is similar."""
    names = {str(option).lstrip("-"): str(option) for option in getattr(error, "possibilities", None) or ()}
    near = nearest(str(getattr(error, "option_name", "")).lstrip("-"), names)
    return f"did you mean {names[near]}?" if near else None


def _sentence(error: BaseException) -> str:
    text = str(getattr(error, "format_message", lambda: error)())
    if getattr(error, "option_name", None) is not None and getattr(error, "possibilities", None):
        text = str(getattr(error, "message", text))  # without the list of options: the hint names the nearest
    return (text[:1].lower() + text[1:]).rstrip(".")


def _command_path(error: BaseException, arguments: list[str]) -> str:
    """The command of a wrong command line. An error about a missing value has no context: the command is the first argument."""
    context = getattr(error, "ctx", None)
    if context is not None:
        return str(context.command_path)
    return " ".join([PROGRAM, *(name for name in arguments[:1] if name in COMMANDS)])


def _reader_has_closed() -> bool:
    """Whether stdout or stderr is a pipe without a reader; if so, stdout becomes /dev/null, which makes the last flush silent."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, 1)
    os.close(null_device)
    return True


def _print_messages(*lines: str) -> None:
    """Write lines to standard error, wrapped on a terminal; silent if it cannot be written."""
    with contextlib.suppress(OSError):
        say(destination(sys.stderr, color="never"), lines)


def _print_traceback(error: BaseException) -> None:
    """Write a traceback to standard error, safe for a terminal: it may contain names from evidence. Silent as `_print_messages`."""
    with contextlib.suppress(OSError):
        for part in traceback.format_exception(error):
            sys.stderr.writelines(f"{printable(line)}\n" for line in part.rstrip("\n").split("\n"))
        sys.stderr.flush()
