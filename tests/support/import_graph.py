"""Finds what modules import: import cycles, and imports of names outside a sub-package's public API."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


@dataclass(frozen=True)
class Module:
    """One Python file: its dotted name, its text and its syntax tree."""

    name: str
    is_package: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def public(self) -> list[str]:
        """What a package's `__init__` imports."""
        return [alias.name for node in self.tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]


def imported(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, module, imported name) of every import in a module.

    The name is "" for `import module`; a relative module starts with a dot.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from ((node.lineno, origin, alias.name) for alias in node.names)


def modules_of(root: Path, folder: str) -> dict[str, Module]:
    """Every module of a folder by its dotted name."""
    modules = {}
    for path in sorted((root / folder).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = Module(name, path.name == "__init__.py", path.read_text())
    return modules


def first_cycle(modules: Mapping[str, Module]) -> list[str]:
    """The modules of one import cycle; empty if no cycle exists."""
    graph = {}
    for name, module in modules.items():
        graph[name] = {_module_of(f"{origin}.{imported_name}", modules) for _, origin, imported_name in imported(module.tree)} - {
            "",
            name,
        }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def private_imports(modules: Mapping[str, Module]) -> Iterator[tuple[str, str]]:
    """(module, what it imports) where the import goes past the `__init__` of a sub-package that the importer is not in."""
    for module in modules.values():
        for _, origin, name in imported(module.tree):
            other = _module_of(f"{origin}.{name}", modules)
            package = other if other and modules[other].is_package else other.rpartition(".")[0]
            inside = module.name == package or module.name.startswith(f"{package}.")
            if package.count(".") >= 2 and not inside and not (origin == package and name in modules[package].public):
                yield module.name, f"{origin}.{name}"


def _module_of(name: str, modules: Mapping[str, Module]) -> str:
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name
