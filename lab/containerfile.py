"""Runs the instructions of a Containerfile in Debian systems in folders, for machines without a container engine."""

import json
import shlex
import shutil
import string
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.debian import enter, make_debian

SUITES: Final = {"python:3.13-slim": "trixie"}
"""Base image → the suite of Debian below it, whose Python has the same minor version."""


@dataclass(slots=True)
class Stage:
    """What the instructions after a FROM made."""

    root: Path
    directory: str = "/"
    user: str = "0:0"
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
    entrypoint: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def path(self, inside: str) -> Path:
        """A path of this stage, relative to its working directory, on this machine."""
        return self.root / str(Path(self.directory, inside)).lstrip("/")

    def start(self, *command: str) -> list[str]:
        """Arguments that start a command as the user and in the working directory of the stage."""
        user, group = self.user.split(":")
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        identity = [f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        return ["setpriv", *identity, "env", "--ignore-environment", f"--chdir={self.directory}", *variables, *command]

    def container(self, *arguments: str, volumes: Mapping[str, Path]) -> list[str]:
        """The command that runs the entrypoint as docs/platforms.md runs the image.

        Disks are read-only but /tmp and volumes whose path ends with `/`; there is no network and no capability.
        """
        mounts = [f"-t tmpfs -o mode=1777 tmpfs {shlex.quote(str(self.root / 'tmp'))}"]
        for inside, outside in volumes.items():
            target = self.path(inside)
            target.mkdir(exist_ok=True)
            mounts.append(f"--bind {shlex.quote(str(outside))} {shlex.quote(str(target))}")
            if not inside.endswith("/"):
                mounts.append(f"-o remount,bind,ro {shlex.quote(str(target))}")
        program, *rest = self.start(*self.entrypoint, *(arguments or self.arguments))
        privileges = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        return [*enter(self.root, mounts, read_only=True, network=False), program, *privileges, *rest]


def build(containerfile: Path, work: Path) -> Stage:
    """Run a Containerfile in `work`; return its last stage. Raises ValueError for an instruction that is not supported here."""
    stages: dict[str, Stage] = {}
    stage = Stage(Path("/nonexistent"))
    for line in containerfile.read_text().splitlines():
        name, _, argument = line.partition(" ")
        if line.endswith("\\"):
            raise ValueError(f"continued line: {line}")
        if name == "FROM":
            image, _, alias = argument.partition(" AS ")
            stage = Stage(_base(image, work, work / f"stage{len(stages)}"))
            stages[alias] = stage
        elif line and not line.startswith("#"):
            apply(name, argument, stage, stages, containerfile.parent)
    return stage


def apply(name: str, argument: str, stage: Stage, stages: Mapping[str, Stage], context: Path) -> None:
    """Run one instruction other than FROM, which copies files from `context`. Raises ValueError for an unknown one."""
    match name:
        case "WORKDIR":
            stage.directory = str(Path(stage.directory, argument))
            stage.path(".").mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy(argument.split(), stage, stages, context)
        case "RUN":
            subprocess.run([*enter(stage.root), *stage.start("sh", "-c", argument)], timeout=900, check=True)
        case "ENV":
            values = [word.split("=", 1) for word in shlex.split(string.Template(argument).substitute(stage.environment))]
            stage.environment.update((key, value) for key, value in values)
        case "USER":
            stage.user = argument
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(argument)
        case "CMD":
            stage.arguments = json.loads(argument)
        case _:
            raise ValueError(f"unknown instruction {name} {argument}")


def _base(image: str, work: Path, root: Path) -> Path:
    """A copy of the base image as the new folder `root`."""
    if image not in SUITES:
        raise ValueError(f"unknown base image {image}")
    base = work / SUITES[image]
    if not base.exists():
        make_debian(SUITES[image], base)
    subprocess.run(["cp", "--archive", "--reflink=auto", base, root], check=True)
    return root


def _copy(words: list[str], stage: Stage, stages: Mapping[str, Stage], context: Path) -> None:
    """COPY: of files into a folder, or of what a folder contains."""
    *sources, target = words
    origin, ignored = context, shutil.ignore_patterns("__pycache__")
    if sources[0].startswith("--from="):
        origin, ignored = stages[sources.pop(0).removeprefix("--from=")].root, shutil.ignore_patterns()
    for name in sources:
        if name.startswith("--"):
            raise ValueError(f"unknown option of COPY: {name}")
        source, destination = origin / name.lstrip("/"), stage.path(target)
        if source.is_dir():
            shutil.copytree(source, destination, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        elif target.endswith("/"):
            destination.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, destination)
        else:
            raise ValueError(f"COPY of the file {name}: end {target} with /")
