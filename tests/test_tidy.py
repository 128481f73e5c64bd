"""Rules that no linter knows: directions of imports, places of heavy libraries, forbidden code."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kafka_forensics.analysis.kinds import CATALOGUE
from tests.support.import_graph import Module, first_cycle, imported, modules_of, private_imports

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "kafka_forensics"

FACTS = "errors version model storage parsers"
SUMMARIES = f"{FACTS} replication evidence analysis"
MAY_IMPORT = {
    "errors": "",
    "version": "",
    "model": "errors",
    "storage": "errors model",
    "parsers": "errors model storage",
    "writers": FACTS,
    "replication": "errors model",
    "simulation": f"{FACTS} writers replication",
    "evidence": f"{FACTS} replication",
    "analysis": "errors model parsers replication evidence",
    "scanning": SUMMARIES,
    "questions": f"{SUMMARIES} scanning writers",
    "wording": "errors model replication evidence analysis",
    "export": f"{SUMMARIES} scanning questions wording",
    "report": f"{SUMMARIES} scanning questions wording export",
    "spark": f"{SUMMARIES} scanning questions wording export",
}
"""Package → packages it may import; `cli` and the modules at the top may import anything."""
ABOVE_ALL = {"cli", "__main__", "__init__"}

OPEN_PACKAGES = tuple(
    f"{PACKAGE}.{name}."
    for name in ("parsers.spec", "parsers.kernels", "analysis.kinds.evidence_classes", "scanning", "export.facts", "cli")
)
"""Packages whose files are one layout, one kernel, one step of a scan, one kind of fact, one command or one output each: a public
API would load them all. Of the classes of evidence it would only repeat the names."""
STEPS = "folding rereading witnesses judging engine"
"""The packages of `scanning`, in order: none imports a later one."""
NAMES_MODULES = {f"{PACKAGE}.scanning.engine.serialization"}
"""It takes all classes of a module."""

CLASSIFIES_KINDS = (
    *(f"{PACKAGE}/analysis/kinds/", f"{PACKAGE}/model/batches.py", f"{PACKAGE}/parsers/"),
    *(f"{PACKAGE}/analysis/incidents/{rules}_rules.py" for rules in ("file", "replication")),
)
"""Files that may have lists of kinds: the catalogue; readers of logs, which name damage; the rules of known incidents."""

HOMES = {
    "construct": ("parsers/spec/",),
    "pyspark": ("spark/",),
    "typer": ("cli/",),
    "rich": ("cli/",),
    "jinja2": ("wording/", "report/"),
    "markupsafe": ("report/",),
    "deltalake": ("export/delta.py",),
    "pyiceberg": ("export/iceberg.py",),
    "sqlalchemy": ("export/iceberg.py",),
    "confluent_kafka": ("export/produce_back.py",),
    "numba": tuple(f"parsers/kernels/{name}.py" for name in ("compiling", "crc_native", "blake2b_native")),
    "pickle": ("parsers/kernels/compiling.py",),
    "marshal": (),
    "llvmlite": ("parsers/kernels/compiling.py", "parsers/kernels/crc_native.py"),
}
TOP_LEVEL = f"{PACKAGE}/cli/main.py"
"""The only module that may catch every error."""
MAY_BE_BROAD = re.compile(r"\bexcept\s*:|\bexcept\b[^:]*\b(?:Base)?Exception\b")
RELATIVE = re.compile(r"^\s*from \.", re.MULTILINE)
UNFINISHED = re.compile(r"\b(?:TO" + "DO|FIX" + r"ME|XX" + r"X)\b|NotImplemented" + "Error")


@cache
def texts(*folders: str) -> list[tuple[str, str]]:
    """(path relative to the root, text) of every module below `folders`."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]


@cache
def package() -> dict[str, Module]:
    """Every module of the package by its dotted name."""
    return modules_of(ROOT, PACKAGE)


def trees() -> Iterator[tuple[str, ast.Module]]:
    """(path relative to the root, tree) of every module of the package."""
    for name, module in package().items():
        yield name.replace(".", "/") + ("/__init__.py" if module.is_package else ".py"), module.tree


def package_of(path: str) -> str:
    return path.split("/")[1].removesuffix(".py")


def import_faults(path: str, tree: ast.Module) -> Iterator[str]:
    own = package_of(path)
    inside = path.removeprefix(f"{PACKAGE}/")
    for line, origin, name in imported(tree):
        top, *rest = f"{origin}.{name}".rstrip(".").split(".")
        if top == PACKAGE and rest:
            other = rest[0]
            known = other in MAY_IMPORT or other in ABOVE_ALL
            if known and own not in ABOVE_ALL and other != own and other not in MAY_IMPORT[own].split():
                yield f"{path}:{line}: {own} must not import {other}"
        elif top in HOMES and not inside.startswith(HOMES[top]):
            yield f"{path}:{line}: {top} may be imported only in {' and '.join(HOMES[top])}"


def step_of(dotted: str) -> str | None:
    """The step of a scan that a module of `scanning` belongs to; None for others."""
    parts = dotted.split(".")
    return parts[2] if parts[:2] == [PACKAGE, "scanning"] and len(parts) > 2 else None


def step_faults(path: str, tree: ast.Module) -> Iterator[str]:
    """Imports of a later step of a scan in an earlier one."""
    own, steps = step_of(path.replace("/", ".")), STEPS.split()
    for line, origin, name in imported(tree) if own in steps else ():
        other = step_of(f"{origin}.{name}")
        if own is not None and other in steps and steps.index(other) > steps.index(own):
            yield f"{path}:{line}: {own} must not import {other}"


def habit_faults(path: str, text: str) -> Iterator[str]:
    tree = ast.parse(text) if MAY_BE_BROAD.search(text) else ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and is_broad(node, top_level=path == TOP_LEVEL):
            yield f"{path}:{node.lineno}: broad except"
    for kind, pattern in (("relative import", RELATIVE), ("unfinished", UNFINISHED)):
        for found in pattern.finditer(text):
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {kind}: {found[0]}"


def is_broad(handler: ast.ExceptHandler, *, top_level: bool) -> bool:
    """Whether a handler swallows unknown exceptions; one that cleans up and raises again does not."""
    if handler.type is None or "Exception" in names_in(handler.type):
        return True
    last = handler.body[-1]
    raises_again = isinstance(last, ast.Raise) and last.exc is None
    return "BaseException" in names_in(handler.type) and not top_level and not raises_again


def names_in(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_imports_point_one_way_and_heavy_libraries_stay_in_their_packages() -> None:
    assert [fault for path, tree in trees() for fault in (*import_faults(path, tree), *step_faults(path, tree))] == []


def test_no_module_imports_the_script_that_recover_copies() -> None:
    assert [path for path, tree in trees() for _, *names in imported(tree) if "produce_back" in ".".join(names)] == []


def test_every_package_is_in_the_table() -> None:
    assert {package_of(path) for path, _ in texts(PACKAGE)} - set(MAY_IMPORT) - ABOVE_ALL == set()


def test_sub_packages_are_imported_by_their_public_api_and_without_cycles() -> None:
    violations = private_imports(package())
    assert [(who, what) for who, what in violations if not what.startswith(OPEN_PACKAGES) and who not in NAMES_MODULES] == []
    assert first_cycle(package()) == first_cycle(modules_of(ROOT, "lab")) == []


def test_a_class_name_has_one_meaning() -> None:
    homes = dict[str, set[str]]()
    for path, tree in trees():
        for node in tree.body:
            if path.startswith(PACKAGE) and isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), set()).add(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def table(page: str, head: str) -> list[tuple[str, str]]:
    """The rows of the two-column table in a page whose first heading is `head`."""
    text = (ROOT / page).read_text()
    block = re.search(rf"^\| {head} \|[^\n]*\|\n\|---\|---\|\n((?:\|[^\n]*\n)+)", text, re.MULTILINE)
    assert block is not None
    return [(cells[1], cells[2]) for row in block[1].splitlines() if (cells := row.split("|"))]


def test_the_table_of_packages_is_the_tree() -> None:
    packages = defaultdict[str, set[str]](set)
    for names, holds in table("CONTRIBUTING.md", "package"):
        for name in re.findall(r"`(\w+)`", names):
            packages[name].update(re.findall(r"`(\w+)`", holds))
    folders = {path.name: path for path in (ROOT / PACKAGE).iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages.keys() == folders.keys() | {path.stem for path in (ROOT / PACKAGE).glob("[!_]*.py")}
    for name, folder in folders.items():
        inner = {path.parent.name for path in folder.glob("*/__init__.py")}
        assert inner <= packages[name], name
        assert {word for word in packages[name] if (ROOT / PACKAGE / name / word).is_dir()} == inner, name


def test_every_place_in_the_table_of_questions_exists() -> None:
    questions = table("docs/development.md", "question")
    assert len(questions) >= 12
    for question, answer in questions:
        places = re.findall(r"`([\w/.]+)`", answer)
        assert places, question
        assert [place for place in places if not (ROOT / PACKAGE / place).exists()] == [], question


def without_hint(tree: ast.Module) -> Iterator[int]:
    """Lines that raise an error of the caller without a hint."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="UsageError" | "PathMissingError"), keywords=keywords):
                if "hint" not in {keyword.arg for keyword in keywords}:
                    yield node.lineno


def test_every_usage_error_has_a_hint() -> None:
    local = [(path, tree) for path, tree in trees() if "/spark/" not in path]
    assert [f"{path}:{line}" for path, tree in local for line in without_hint(tree)] == []
    assert list(without_hint(ast.parse("raise UsageError('x')\nraise UsageError('x', hint='y')\nPathMissingError('z')"))) == [1, 3]


Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def variables(node: ast.AST) -> set[str]:
    """The variables of a comprehension; empty for other nodes."""
    return names_in(ast.Tuple([loop.target for loop in node.generators])) if isinstance(node, Comprehension) else set()


def reads_outside(node: ast.AST, hidden: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names that are read where no comprehension uses them for a variable."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and child.id not in hidden:
            yield child.id
        yield from reads_outside(child, hidden | variables(child))


def hidden_names(tree: ast.Module) -> Iterator[str]:
    """Functions and imports that a function uses beside a comprehension whose variable has the same name."""
    top = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)} | {
        name for *_, name in imported(tree)
    }
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inner = {name for node in ast.walk(function) for name in variables(node)}
            yield from sorted(inner & top & set(reads_outside(function)))


def test_no_comprehension_hides_a_function_that_is_called_beside_it() -> None:
    """CPython 3.12.1 may take such a name for an unset local variable."""
    assert [(path, name) for path, tree in trees() for name in hidden_names(tree)] == []
    source = "from words import moment\ndef f(a):\n    b = [moment for moment in a] if a else []\n    return moment(b)"
    assert list(hidden_names(ast.parse(source))) == ["moment"]


def lists_of_kinds(tree: ast.Module) -> Iterator[int]:
    """Lines of collections, keys, arguments or patterns that name at least two kinds of findings."""
    for node in ast.walk(tree):
        match node:
            case ast.Set(elts=named) | ast.List(elts=named) | ast.Tuple(elts=named) | ast.Dict(keys=named) | ast.Call(args=named):
                nodes: list[ast.expr | None] = [*named]
            case ast.MatchOr(patterns=patterns):
                nodes = [pattern.value for pattern in patterns if isinstance(pattern, ast.MatchValue)]
            case _:
                continue
        if sum(isinstance(name, ast.Constant) and name.value in CATALOGUE for name in nodes) > 1:
            yield node.lineno


def test_no_module_has_a_list_of_kinds() -> None:
    """Common properties of kinds are a `Trait`."""
    rest = [(path, tree) for path, tree in trees() if not path.startswith(CLASSIFIES_KINDS)]
    assert [f"{path}:{line}" for path, tree in rest for line in lists_of_kinds(tree)] == []


@pytest.mark.parametrize(
    ("source", "lists"),
    [
        ("OF_GAPS = frozenset({'OFFSET_GAP', 'SEGMENT_MISSING'})", 1),
        ("finding.kind in ('OFFSET_GAP', 'SEGMENT_MISSING')", 1),
        ("WORDS = {'OFFSET_GAP': 'gap', 'SEGMENT_MISSING': 'segment'}", 1),
        ("dict.fromkeys(['OFFSET_GAP', *OTHERS, 'SEGMENT_MISSING'])", 1),
        ("has('OFFSET_GAP', 'SEGMENT_MISSING')", 1),
        ("match kind:\n    case 'OFFSET_GAP' | 'SEGMENT_MISSING':\n        pass", 1),
        ("kinds_with(Trait.LACKS_OFFSETS) | {'LOG_HEAD_MISSING'}", 0),
        ("finding.kind == 'OFFSET_GAP'", 0),
        ("finding('OFFSET_GAP' if inside else 'SEGMENT_MISSING', place, {'reason': 'OFFSET_GAP'})", 0),
        ("STATES = frozenset({'empty', 'whole'})", 0),
    ],
)
def test_the_rule_of_kinds_can_fail(source: str, lists: int) -> None:
    assert len(list(lists_of_kinds(ast.parse(source)))) == lists


def test_no_broad_except_no_relative_import_nothing_unfinished() -> None:
    assert [fault for path, text in texts(PACKAGE, "tests", "lab", "bench") for fault in habit_faults(path, text)] == []


@pytest.mark.parametrize(
    ("path", "source", "faults"),
    [
        ("kafka_forensics/parsers/x.py", "from kafka_forensics.analysis import folds", 1),
        ("kafka_forensics/parsers/x.py", "def f():\n    import numba", 1),
        ("kafka_forensics/parsers/x.py", "from kafka_forensics import cli", 1),
        ("kafka_forensics/parsers/kernels/crc_native.py", "import numba", 0),
        ("kafka_forensics/cli/x.py", "from kafka_forensics.scanning.engine import local\nimport rich", 0),
        ("kafka_forensics/analysis/x.py", "from kafka_forensics import __version__", 0),
    ],
)
def test_the_import_rule_can_fail(path: str, source: str, faults: int) -> None:
    assert len(list(import_faults(path, ast.parse(source)))) == faults


@pytest.mark.parametrize(
    ("path", "source", "faults"),
    [
        ("x.py", "from . import x\ntry:\n    pass\nexcept (OSError, Exception):\n    pass\n" + "# TO" + "DO\n", 3),
        ("x.py", "try:\n    pass\nexcept:\n    pass\n", 1),
        ("x.py", "try:\n    pass\nexcept BaseException:\n    pass\n", 1),
        (TOP_LEVEL, "try:\n    pass\nexcept BaseException:\n    pass\n", 0),
        ("x.py", "try:\n    pass\nexcept BaseException:\n    stop()\n    raise\n", 0),
    ],
)
def test_the_other_rules_can_fail(path: str, source: str, faults: int) -> None:
    assert len(list(habit_faults(path, source))) == faults
