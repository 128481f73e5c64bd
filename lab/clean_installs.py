"""Installs what `make dist` built into clean environments, runs the commands and prints a table: `python -m lab.clean_installs`.

It uses every Python of this machine and, as root with debootstrap, those of a Debian suite.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lab.debian import can_make_debian, enter, make_debian
from lab.errors import LabError
from lab.pythons import pythons

HELP_SECONDS: Final = 0.4
"""`--help` must end within this time."""
SIZES: Final = """
from importlib.metadata import distributions
import json
sizes = {}
for package in distributions():
    files = [file.locate() for file in package.files or ()]
    sizes[f"{package.name} {package.version}"] = sum(file.stat().st_size for file in files if file.exists())
print(json.dumps(sizes))
"""
"""Prints package and version → bytes of its files."""


def this_environment() -> dict[str, str]:
    """Variables of this process without those that lead to this repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "KAFKA_"))}


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment `env` in a folder, which is also the working directory of its programs."""

    folder: Path
    enter: tuple[str, ...] = ()
    """The beginning of commands that run in another system."""

    def call(self, *command: str | Path, status: int = 0) -> str:
        """Run a command that must end with `status`; return its stdout. Raises LabError for another status."""
        words = [*self.enter, *(["env", f"--chdir={self.folder}"] if self.enter else []), *map(str, command)]
        done = subprocess.run(
            words, cwd=self.folder, env=this_environment(), capture_output=True, text=True, timeout=1200, check=False
        )
        if done.returncode != status:
            raise LabError(f"{command}: exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def run(self, program: str, *arguments: str | Path, status: int = 0) -> str:
        """`call` for a program of the environment."""
        return self.call(self.folder / "env" / "bin" / program, *arguments, status=status)

    def install(self, python: Path, package: Path) -> None:
        """Create the environment and install a package into it."""
        self.call(python, "-m", "venv", "env")
        self.run("pip", "install", "--quiet", package)

    def try_commands(self) -> str:
        """Run the commands of an incident on a sample; return the first line of the scan."""
        self.run("kafka-forensics", "demo", "samples")
        self.run("kafka-forensics", "plan", "samples/unclean-election")
        self.run("kafka-forensics", "report", "samples/unclean-election", "--output", "report.html")
        self.run("kafka-forensics", "doctor")
        return self.run("kafka-forensics", "scan", "samples/unclean-election", status=1).splitlines()[0]

    def help_seconds(self) -> float:
        """The shortest of three times of `--help`."""
        times = []
        for _ in range(3):
            began = time.perf_counter()
            self.run("kafka-forensics", "--help")
            times.append(time.perf_counter() - began)
        return min(times)

    def megabytes(self) -> int:
        """Disk space of the environment."""
        return round(int(self.call("du", "--summarize", "--block-size=1", "env").split()[0]) / 1e6)

    def packages(self) -> dict[str, int]:
        """Package and version → bytes of its files, largest first."""
        sizes: dict[str, int] = json.loads(self.run("python", "-c", SIZES))
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))


@contextmanager
def debian_pythons(suite: str, packages: list[str], folder: Path) -> Iterator[tuple[list[Path], tuple[str, ...]]]:
    """The Pythons of a new Debian system, and the beginning of commands that run there and see `folder` under the same path."""
    with tempfile.TemporaryDirectory(prefix="debian-") as temporary:
        root = Path(temporary) / suite
        make_debian(suite, root, *packages)
        (root / folder.relative_to("/")).mkdir(parents=True)
        names = [path.name for path in (root / "usr" / "bin").glob("python3.*") if path.name.removeprefix("python3.").isdigit()]
        start = ["env", "--ignore-environment", "PATH=/usr/bin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        yield [Path("/usr/bin", name) for name in sorted(names)], (*enter(root, [f"--bind {folder} {root}{folder}"]), *start)


def row(system: str, python: Path, start: tuple[str, ...], work: Path) -> str:
    """Install wheel and sdist of `work` into environments there, and describe both in a row of the table."""
    (wheel,), (sdist,) = work.glob("*.whl"), work.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(dir=work) as folder:
        installed = Installation(Path(folder), start)
        installed.install(python, wheel)
        version = installed.run("kafka-forensics", "--version").splitlines()[1]
        first_line = installed.try_commands()
        seconds, size, packages = installed.help_seconds(), installed.megabytes(), installed.packages()
    with tempfile.TemporaryDirectory(dir=work) as folder:
        from_sdist = Installation(Path(folder), start)
        from_sdist.install(python, sdist)
        same = from_sdist.try_commands() == first_line
    largest = ", ".join(f"{name} {size / 1e6:.0f}" for name, size in list(packages.items())[:5])
    slow = "" if seconds < HELP_SECONDS else f", more than {HELP_SECONDS} s"
    answer = "the same" if same else "ANOTHER FIRST LINE"
    return f"| {version}, {system} | `{first_line}` | {seconds:.2f} s{slow} | {size} MB | {largest} | {answer} |"


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m lab.clean_installs", description=__doc__)
    parser.add_argument("dist", nargs="?", type=Path, default=Path("dist"), help="folder of wheel and sdist (default: dist)")
    parser.add_argument("--debian", default="sid", metavar="SUITE", help="also try the Pythons of this suite (default: sid)")
    parser.add_argument(
        "--packages", nargs="*", default=["python3.15-venv"], help="its packages of further Pythons (default: 3.15)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="installs-") as temporary:
        work = Path(temporary)
        built = [Path(shutil.copy(path, work)).name for path in sorted(options.dist.glob("kafka_forensics-*"))]
        print(f"{datetime.now(UTC).date()}, {' and '.join(built)}:\n")
        print("| Python | wheel: first line of `scan` | `--help` | environment | largest packages, MB | sdist: first line |")
        print("|---|---|---|---|---|---|")
        for python in pythons().values():
            print(row(" ".join([platform.system(), platform.machine(), *platform.libc_ver()]), python, (), work), flush=True)
        if can_make_debian():
            with debian_pythons(options.debian, options.packages, work) as (found, start):
                for python in found:
                    print(row(f"Debian {options.debian}", python, start, work), flush=True)
        else:
            print("no Debian system: this needs root and debootstrap", file=sys.stderr)


if __name__ == "__main__":
    main()
