"""What goes beside the package into `share/` of an installation: the man page, and completion for three shells.

`python -m lab.installed_files` writes them to `share/` of the repository, from the help of the commands and by what typer has for
each shell. A test holds them equal.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # where `--show-completion` has it from

from kafka_forensics.cli.main import PROGRAM, parser, root
from kafka_forensics.cli.manual import MAKE_SAMPLES, MANUAL
from kafka_forensics.version import __version__

if TYPE_CHECKING:
    from typer._click.core import Command, Context, Parameter

SHARE: Final = Path(__file__).resolve().parents[1] / "share"
COMPLETION: Final = {
    "bash": f"bash-completion/completions/{PROGRAM}",
    "zsh": f"zsh/site-functions/_{PROGRAM}",
    "fish": f"fish/vendor_completions.d/{PROGRAM}.fish",
}
"""Shell → where it looks for the completion of a command, below `share/`."""
MAN_PAGE: Final = f"man/man1/{PROGRAM}.1"

ENVIRONMENT: Final = {
    "NO_COLOR": "If it is not empty, no colours.",
    "COLUMNS": "How wide tables are where no terminal says it.",
    "XDG_CACHE_HOME": "Below it compiled kernels are kept, else in ~/.cache; --cache-dir goes before both.",
    "KAFKA_FORENSICS_KERNELS": "interpreted or compiled: how hot loops run [default: by the size of the work].",
    "AWS_*, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_*": "How storage services are reached that a URI names.",
}
"""Variables and what they do, for the man page."""


def completion(shell: str) -> str:
    """The file by which a shell completes the command.

    What typer has for zsh completes nothing the first time, when zsh loads it as a function: so it calls what it has defined.
    """
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    script: str = get_completion_script(prog_name=PROGRAM, complete_var=variable, shell=shell)
    if shell == "zsh":
        script += f'\n[[ $zsh_eval_context[-1] != loadautofunc ]] || _{PROGRAM.replace("-", "_")}_completion "$@"'
    return script + "\n"


def man_page() -> str:
    """The man page: every command with its arguments, options, examples and exit statuses, as its own help has them."""
    top = parser()
    context = typer.Context(top, info_name=PROGRAM, **top.context_settings)
    return "".join(f"{line}\n" for line in _page(top, context))


def _page(top: "Command", context: "Context") -> Iterator[str]:
    summary, _, rest = (root.__doc__ or "").strip().partition("\n\n")
    yield f'.TH {_roff(PROGRAM.upper())} 1 "" "{_roff(f"{PROGRAM} {__version__}")}" "User Commands"'
    yield from (".nh", ".ad l", ".SH NAME", rf"{_roff(PROGRAM)} \- {_roff(summary[:1].lower() + summary[1:].rstrip('.'))}")
    yield from (".SH SYNOPSIS", f".B {_roff(PROGRAM)}", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(f"{summary}\n\n{rest}")
    yield ".SH OPTIONS"
    yield from _options(top, context)
    yield ".SH COMMANDS"
    yield from (_roff(f"The examples read what `{PROGRAM} {MAKE_SAMPLES}` writes."),)
    for words, command, inner in _commands(top, context):
        yield from _command(words, command, inner)
    yield ".SH EXIT STATUS"
    yield from _definitions({str(status): meaning for status, meaning in MANUAL[""].exit_statuses.items()})
    yield ".SH ENVIRONMENT"
    yield from _definitions(ENVIRONMENT)


def _commands(group: "Command", context: "Context") -> Iterator[tuple[str, "Command", "Context"]]:
    """The words of each command below a group, in the order of its help, with the command and its context."""
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = group.commands[name]  # type: ignore[attr-defined]
        inner = typer.Context(command, info_name=name, parent=context)
        yield inner.command_path.partition(" ")[2], command, inner
        if hasattr(command, "commands"):
            yield from _commands(command, inner)


def _command(words: str, command: "Command", context: "Context") -> Iterator[str]:
    yield f".SS {_roff(words)}"
    yield f".B {_roff(context.command_path)}"
    arguments = [_written(param) for param in command.params if param.param_type_name == "argument"]
    yield _roff(" ".join(["[OPTIONS]", *arguments, *(["COMMAND"] if hasattr(command, "commands") else [])]))
    yield ".PP"
    yield from _paragraphs(command.help or "")
    yield from _options(command, context)
    manual = MANUAL[words]
    yield from (".PP", "Examples:", ".PP", ".nf", ".RS")
    yield from (_roff(f"{PROGRAM} {example}") for example in manual.examples)
    yield from (".RE", ".fi", ".PP", "Exit status:")
    yield from _definitions({str(status): meaning for status, meaning in manual.exit_statuses.items()})


def _options(command: "Command", context: "Context") -> Iterator[str]:
    """Arguments, then options: how each is written, and its help."""
    params = sorted(command.get_params(context), key=lambda param: param.param_type_name != "argument")
    yield from _definitions({_written(param): _said(param) for param in params})


def _written(param: "Parameter") -> str:
    """`--topic GLOB`, `-q, --quiet`, `--whole, --partial`, `[KIND]`, `PATH...`."""
    value = param.metavar or str(param.name).upper()
    if param.param_type_name == "argument":
        several = value if param.nargs == 1 or value.endswith("...") else f"{value}..."
        return several if param.required else f"[{several}]"
    names = ", ".join([*sorted(param.opts, key=len), *param.secondary_opts])
    return names if getattr(param, "is_flag", False) else f"{names} {value}"


def _said(param: "Parameter") -> str:
    """The help of an argument or option, with its default where the help does not say it."""
    text: str = getattr(param, "help", None) or ""
    unsaid = isinstance(param.default, str | int) and not isinstance(param.default, bool)
    return f"{text} [default: {param.default}]" if unsaid and "[default:" not in text else text


def _definitions(meanings: dict[str, str]) -> Iterator[str]:
    for name, meaning in meanings.items():
        yield from (".TP", f".B {_roff(name)}", _roff(meaning))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ".PP"
        yield _roff(" ".join(paragraph.split()))


def _roff(text: str) -> str:
    """`text` as roff prints it letter for letter, on a line of its own or behind a macro's name."""
    return (
        " ".join(text.split())
        .replace("\\", r"\e")
        .replace("-", r"\-")
        .replace("'", r"\(aq")
        .replace("`", r"\(ga")
        .replace("...", r"\&...")
    )


def write_files(share: Path = SHARE) -> None:
    """Write every file to its place below `share`."""
    for place, text in files().items():
        (share / place).parent.mkdir(parents=True, exist_ok=True)
        (share / place).write_text(text, encoding="utf-8", newline="\n")


def files() -> dict[str, str]:
    """Each file by its place below `share/`."""
    return {MAN_PAGE: man_page(), **{place: completion(shell) for shell, place in COMPLETION.items()}}


if __name__ == "__main__":
    write_files()
