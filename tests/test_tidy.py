"""The house's rules that no linter knows: which way imports point, where heavy libraries live, what code may not hold."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lab.house import circles, doors_passed, modules_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "kafka_forensics"

FACTS = "errors version compiled model storage parsers"
SUMMARIES = f"{FACTS} replication evidence analysis folding"
FINDINGS = f"{SUMMARIES} rereading witnesses judging"
MAY_IMPORT = {
    "errors": "",
    "version": "",
    "compiled": "errors",
    "model": "errors compiled",
    "storage": "errors compiled model",
    "parsers": "errors compiled model storage",
    "writers": FACTS,
    "replication": "errors compiled model",
    "simulation": f"{FACTS} writers replication",
    "evidence": f"{FACTS} replication",
    "analysis": "errors compiled model replication evidence",
    "folding": f"{FACTS} replication evidence analysis",
    "rereading": SUMMARIES,
    "witnesses": f"{SUMMARIES} rereading",
    "judging": f"{SUMMARIES} rereading witnesses",
    "engine": FINDINGS,
    "questions": f"{FINDINGS} engine writers",
    "facts": f"{FINDINGS} engine questions",
    "wording": "errors model replication evidence analysis",
    "export": f"{FINDINGS} engine questions facts wording",
    "report": f"{FINDINGS} engine questions facts wording export",
    "spark": f"{FINDINGS} engine questions facts wording export",
}
"""Room → rooms below it; `cli`, and the few modules beside it at the top, may import anything."""
ABOVE_ALL = {"cli", "__main__", "__init__"}

WITHOUT_DOOR = tuple(f"{PACKAGE}.{name}." for name in ("parsers.spec", "parsers.kernels", "cli.commands", "cli.outputs"))
"""Where each file is one layout, one kernel, one command or one kind of answer: a door would load them all."""
NAMES_MODULES = {f"{PACKAGE}.engine.serialization"}
"""It takes all classes of a module."""

HOMES = {
    "construct": ("parsers/spec/",),
    "pyspark": ("spark/",),
    "typer": ("cli/",),
    "rich": ("cli/",),
    "jinja2": ("wording/", "report/"),
    "msgspec": ("engine/", "report/document.py", "questions/verify/"),
    "markupsafe": ("report/",),
    "deltalake": ("export/delta.py",),
    "pyiceberg": ("export/iceberg.py",),
    "sqlalchemy": ("export/iceberg.py",),
    "numba": ("compiled/", *(f"parsers/kernels/{name}_native.py" for name in ("crc", "blake2b"))),
    "llvmlite": ("compiled/", "parsers/kernels/crc_native.py"),
}
TOP_LEVEL = f"{PACKAGE}/cli/main.py"
"""Where every error ends, and the only place that may catch them all."""
UNFINISHED = re.compile(r"\b(?:TO" + "DO|FIX" + r"ME|XX" + r"X)\b|NotImplemented" + "Error")


@cache
def modules(*folders: str) -> list[tuple[str, str, ast.Module]]:
    """(path relative to the root, text, tree) of every module below `folders`."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]
    return [(path, text, ast.parse(text)) for path, text in texts]


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported anywhere in a module; a relative import starts with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{base}.{name.name}") for name in node.names)


def room_of(path: str) -> str:
    return path.split("/")[1].removesuffix(".py")


def import_faults(path: str, tree: ast.Module) -> Iterator[str]:
    room = room_of(path)
    inside = path.removeprefix(f"{PACKAGE}/")
    for line, name in imports(tree):
        top, *rest = name.split(".")
        if top == PACKAGE and rest:
            other = rest[0]
            known = other in MAY_IMPORT or other in ABOVE_ALL
            if known and room not in ABOVE_ALL and other != room and other not in MAY_IMPORT[room].split():
                yield f"{path}:{line}: {room} must not import {other}"
        elif top in HOMES and not inside.startswith(HOMES[top]):
            yield f"{path}:{line}: {top} may be imported only in {' and '.join(HOMES[top])}"


def habit_faults(path: str, text: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and is_broad(node, top_level=path == TOP_LEVEL):
            yield f"{path}:{node.lineno}: broad except"
    yield from (f"{path}:{line}: relative import" for line, name in imports(tree) if name.startswith("."))
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number}: unfinished: {line.strip()}"


def is_broad(handler: ast.ExceptHandler, *, top_level: bool) -> bool:
    """Whether a handler swallows what it cannot know; cleaning up after anything and raising it again does not."""
    if handler.type is None or "Exception" in names_in(handler.type):
        return True
    last = handler.body[-1]
    raises_again = isinstance(last, ast.Raise) and last.exc is None
    return "BaseException" in names_in(handler.type) and not top_level and not raises_again


def names_in(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_imports_point_one_way_and_heavy_libraries_stay_home() -> None:
    assert [fault for path, _, tree in modules(PACKAGE) for fault in import_faults(path, tree)] == []


def test_every_room_is_in_the_table() -> None:
    rooms = {room_of(path) for path, _, _ in modules(PACKAGE)}
    assert rooms - set(MAY_IMPORT) - ABOVE_ALL == set()


def test_sub_packages_are_entered_by_their_doors() -> None:
    passed = doors_passed(modules_of(ROOT))
    walls = [(who, what) for who, what in passed if not what.startswith(WITHOUT_DOOR) and who not in NAMES_MODULES]
    assert walls == []


@pytest.mark.parametrize("folder", [PACKAGE, "lab"])
def test_no_file_is_in_a_circle(folder: str) -> None:
    assert circles(modules_of(ROOT, folder)) == []


def tables() -> list[list[tuple[str, str]]]:
    """The rows of each table of two columns in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    blocks = re.findall(r"^\|[^\n]*\|\n\|---\|---\|\n((?:\|[^\n]*\n)+)", text, re.MULTILINE)
    return [[(cells[1], cells[2]) for row in block.splitlines() if (cells := row.split("|"))] for block in blocks]


def test_the_table_of_rooms_is_the_tree() -> None:
    rooms = dict[str, set[str]]()
    for names, holds in tables()[0]:
        rooms |= {name: set(re.findall(r"`(\w+)`", holds)) for name in re.findall(r"`(\w+)`", names)}
    folders = {path.name: path for path in (ROOT / PACKAGE).iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms.keys() == folders.keys() | {path.stem for path in (ROOT / PACKAGE).glob("[!_]*.py")}
    for name, folder in folders.items():
        inner = {path.parent.name for path in folder.glob("*/__init__.py")}
        assert inner <= rooms[name], name
        assert {word for word in rooms[name] if (ROOT / PACKAGE / name / word).is_dir()} == inner, name


def test_every_place_that_answers_a_question_is_there() -> None:
    questions = tables()[1]
    assert len(questions) >= 12
    for question, answer in questions:
        places = re.findall(r"`([\w/.]+)`", answer)
        assert places, question
        assert [place for place in places if not (ROOT / PACKAGE / place).exists()] == [], question


def test_no_broad_except_no_relative_import_nothing_unfinished() -> None:
    everywhere = modules(PACKAGE, "tests", "lab", "bench")
    assert [fault for path, text, tree in everywhere for fault in habit_faults(path, text, tree)] == []


@pytest.mark.parametrize(
    ("path", "source", "faults"),
    [
        ("kafka_forensics/parsers/x.py", "from kafka_forensics.analysis import folds", 1),
        ("kafka_forensics/parsers/x.py", "def f():\n    import numba", 1),
        ("kafka_forensics/parsers/x.py", "from kafka_forensics import cli", 1),
        ("kafka_forensics/parsers/kernels/crc_native.py", "import numba", 0),
        ("kafka_forensics/cli/x.py", "from kafka_forensics.engine import local\nimport rich", 0),
        ("kafka_forensics/analysis/x.py", "from kafka_forensics import __version__", 0),
    ],
)
def test_the_import_rule_can_fail(path: str, source: str, faults: int) -> None:
    assert len(list(import_faults(path, ast.parse(source)))) == faults


def test_the_other_rules_can_fail() -> None:
    source = "from . import x\ntry:\n    pass\nexcept (OSError, Exception):\n    pass\n" + "# TO" + "DO\n"
    assert len(list(habit_faults("x.py", source, ast.parse(source)))) == 3
    everything = ast.parse("try:\n    pass\nexcept BaseException:\n    pass\n")
    assert len(list(habit_faults("x.py", "", everything))) == 1
    assert list(habit_faults(TOP_LEVEL, "", everything)) == []
    cleaning = ast.parse("try:\n    pass\nexcept BaseException:\n    stop()\n    raise\n")
    assert list(habit_faults("x.py", "", cleaning)) == []
