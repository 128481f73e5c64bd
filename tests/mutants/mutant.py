"""One line of the package changed, and the tests that must notice."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """`old` stands exactly once in `file` and is replaced by `new`; one of `tests` must then fail. Where none can, `survives` says
    why. Paths are relative to the project."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def mutated(self, project: Path = ROOT) -> str:
        """The whole file of a project with the change made. Raises ValueError if the old text is not there exactly once."""
        text = (project / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: this stands there {text.count(self.old)} times, not once: {self.old!r}")
        return text.replace(self.old, self.new)


def mutants_of(file: str, tests: str, *changes: tuple[str, ...]) -> list[Mutant]:
    """Mutants of a module of the package: (old, new) or (old, new, why it survives), all held to the same test modules, which are
    named by their paths below `tests/`, separated by spaces."""
    held_to = tuple(f"tests/{name}.py" for name in tests.split())
    return [Mutant(f"kafka_forensics/{file}.py", old, new, held_to, *why) for old, new, *why in changes]
