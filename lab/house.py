"""Figures of the house: how large its rooms are, how plain its names, how long its functions, and what goes round in circles.

`python -m lab.house [TREE ...]` prints a column for each: a folder that holds `kafka_forensics/`, or a commit of this repository.
"""

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Final

PACKAGE: Final = "kafka_forensics"
SMALL_LINES: Final = 80
MANY_BRANCHES: Final = 15
MANY_ARGUMENTS: Final = 6
EMPTY_NAMES: Final = ("one", "found", "each", "told", "asked", "what")
_NO_CODE: Final = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_BRANCHES: Final = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.match_case, ast.comprehension)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, its text and its tree."""

    name: str
    is_package: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """As `ast` reads it."""
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        """All of them."""
        return len(self.text.splitlines())

    @property
    def lines_of_code(self) -> int:
        """Those that hold more than a comment or a docstring."""
        strings = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Expr))
        prose: set[int] = set()
        for string in strings:
            if isinstance(string, ast.Constant) and isinstance(string.value, str):
                prose.update(range(string.lineno, (string.end_lineno or string.lineno) + 1))
        held: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _NO_CODE:
                held.update(range(token.start[0], token.end[0] + 1))
        return len(held - prose)

    @property
    def functions(self) -> list[Function]:
        """Methods and inner ones among them."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @property
    def classes(self) -> list[str]:
        """Names of all its classes."""
        return [node.name for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    @property
    def public(self) -> list[str]:
        """Functions and classes at its top that are no secret."""
        return [
            node.name
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
        ]

    @property
    def bound(self) -> Counter[str]:
        """How often each name is bound: assigned, looped over, or an argument."""
        nodes = list(ast.walk(self.tree))
        assigned = (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        return Counter(assigned) + Counter(node.arg for node in nodes if isinstance(node, ast.arg))

    def uses(self, name: str) -> int:
        """How often a name is read."""
        return sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(self.tree))

    def calls(self, name: str) -> int:
        """How often a function or class of this name is called."""
        called = (node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return sum(isinstance(function, ast.Name) and function.id == name for function in called)

    @property
    def names_imported(self) -> list[tuple[str, str]]:
        """(module, name in it) of everything imported anywhere in it; a module as such has no name."""
        names = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names += [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names += [(node.module, alias.name) for alias in node.names]
        return names

    @property
    def shown(self) -> list[str]:
        """What a package's `__all__` names."""
        values = (
            node.value for node in self.tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
        return [str(name) for value in values for name in ast.literal_eval(value)]

    def imports(self, modules: Mapping[str, "Module"]) -> set[str]:
        """Which of `modules` it imports."""
        named = (_module_of(f"{module}.{name}", modules) for module, name in self.names_imported)
        return {name for name in named if name and name != self.name}


def _module_of(name: str, modules: Mapping[str, Module]) -> str:
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def modules_of(root: Path, folder: str = PACKAGE) -> dict[str, Module]:
    """Every module of a folder by its dotted name."""
    modules = {}
    for path in sorted((root / folder).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = Module(name, path.name == "__init__.py", path.read_text())
    return modules


def branches_of(function: Function) -> int:
    """Ways through a function: one, and one more for each `if`, loop, comprehension, handler, case, `and` and `or`."""
    count = 1
    for node in ast.walk(function):
        count += isinstance(node, _BRANCHES)
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
    return count


def arguments_of(function: Function) -> int:
    """How many arguments it names."""
    return len(function.args.posonlyargs + function.args.args + function.args.kwonlyargs)


def circles(modules: Mapping[str, Module]) -> list[list[str]]:
    """Modules that import each other, over however many between (Tarjan's strongly connected components)."""
    imports = {name: module.imports(modules) for name, module in modules.items()}
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for other in sorted(imports[name]):
            if other not in index:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], index[other])
        if lowest[name] == index[name]:
            position = stack.index(name)
            if len(stack) - position > 1:
                groups.append(sorted(stack[position:]))
            del stack[position:]

    for name in modules:
        if name not in index:
            visit(name)
    return groups


def doors_passed(modules: Mapping[str, Module]) -> list[tuple[str, str]]:
    """(module, what it imports) where that lies in a sub-package of a room that the importer is outside of, and whose `__init__`
    does not show it."""
    passed = []
    for module in modules.values():
        for origin, name in module.names_imported:
            other = _module_of(f"{origin}.{name}", modules)
            package = other if other and modules[other].is_package else other.rpartition(".")[0]
            inside = module.name == package or module.name.startswith(f"{package}.")
            if package.count(".") >= 2 and not inside and not (origin == package and name in modules[package].shown):
                passed.append((module.name, f"{origin}.{name}"))
    return passed


def figures(root: Path) -> Iterator[tuple[str, object]]:
    """Every figure of a tree, by what it counts."""
    modules = modules_of(root)
    every = list(modules.values())
    functions = [function for module in every for function in module.functions]
    classes = Counter(name for module in every for name in module.classes if not name.startswith("_"))
    bound = sum((module.bound for module in every), Counter[str]())
    yield "modules", len(every)
    yield "lines", sum(module.lines for module in every)
    yield "lines of code", sum(module.lines_of_code for module in every)
    yield f"modules below {SMALL_LINES} lines", sum(module.lines < SMALL_LINES for module in every)
    yield "modules with one public name", sum(len(module.public) == 1 for module in every)
    for room in ("engine", "analysis", "cli"):
        flat = [module for module in every if module.name.rpartition(".")[0] == f"{PACKAGE}.{room}" and not module.is_package]
        yield f"modules flat in {room}", len(flat)
    yield "functions", len(functions)
    yield "median lines of a function", median(function.end_lineno - function.lineno + 1 for function in functions)  # type: ignore[operator]
    yield f"functions of more than {MANY_BRANCHES} branches", sum(branches_of(node) > MANY_BRANCHES for node in functions)
    yield f"functions of more than {MANY_ARGUMENTS} arguments", sum(arguments_of(node) > MANY_ARGUMENTS for node in functions)
    yield "public class names of several meanings", sum(count > 1 for count in classes.values())
    for name in EMPTY_NAMES:
        yield f"variables called `{name}`", bound[name]
    yield "modules with `Any`", sum(module.uses("Any") > 0 for module in every)
    yield "uses of `Any`", sum(module.uses("Any") for module in every)
    yield "places that build a SegmentReader", sum(module.calls("SegmentReader") for module in every)
    yield "files in circles", sum(map(len, circles(modules)))
    yield "files in circles in lab", sum(map(len, circles(modules_of(root, "lab"))))
    yield "imports past a sub-package's door", len(doors_passed(modules))


def table(trees: Mapping[str, Path]) -> Iterator[str]:
    """A line a figure, a column a tree."""
    columns = [dict(figures(root)) for root in trees.values()]
    widths = [
        max(len(name), *(len(_shown(value)) for value in column.values())) for name, column in zip(trees, columns, strict=True)
    ]
    first = max(map(len, columns[0]))
    yield " ".join([" " * first, *(name.rjust(width) for name, width in zip(trees, widths, strict=True))])
    for figure in columns[0]:
        values = (_shown(column[figure]).rjust(width) for column, width in zip(columns, widths, strict=True))
        yield " ".join([figure.ljust(first), *values])


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def main(arguments: Iterable[str]) -> None:
    """Print the table of the trees that are named, else of this one."""
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        trees = {}
        for argument in arguments or ["."]:
            trees[argument] = Path(argument) if Path(argument).is_dir() else _commit(here, argument, Path(folder) / argument)
        sys.stdout.writelines(line.rstrip() + "\n" for line in table(trees))


def _commit(repository: Path, commit: str, folder: Path) -> Path:
    """The code of a commit, in a folder of its own."""
    packed = subprocess.run(["git", "archive", commit, PACKAGE, "lab"], cwd=repository, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


if __name__ == "__main__":
    main(sys.argv[1:])
