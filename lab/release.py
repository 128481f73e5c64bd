"""Checks whether a commit can be released: `python -m lab.release`, for `make release` and `make release-checks`.

It needs git and the standard library only.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
MAIN: Final = "main"
_HEADING: Final = re.compile(r"^## \[(?P<version>[^]]+)\](?: [-–] (?P<day>.+))?$", re.MULTILINE)


def version_of(root: Path) -> str:
    """The version in `kafka_forensics/version.py`. Raises ValueError without one."""
    return _only(r'^__version__ = "(.+)"$', root / "kafka_forensics" / "version.py")


def refusals(root: Path, *, is_tagged: bool = False) -> Iterator[str]:
    """Why the checked-out commit cannot be released, one sentence each; with `is_tagged`, why its tag was wrong.

    Raises ValueError for a file without a version.
    """
    version = version_of(root)
    head, tagged = (
        _git(root, "rev-parse", "HEAD"),
        _git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/v{version}^{{commit}}"),
    )
    if is_tagged:
        if not tagged or tagged != head:
            yield f"The checked-out commit has version {version} and no tag v{version}: tag it, or delete the wrong tag."
    else:
        if tagged:
            yield f"Tag v{version} exists: raise the version in kafka_forensics/version.py, CITATION.cff and CHANGELOG.md."
        if (branch := _git(root, "branch", "--show-current")) != MAIN:
            yield f"A release starts from branch {MAIN}, and this is {branch or 'no branch'}: check out {MAIN}."
    if _git(root, "status", "--porcelain"):
        yield "The working tree differs from the commit: commit or remove what `git status` lists."
    if (cited := _only(r"^version: (.+)$", root / "CITATION.cff")) != version:
        yield f"CITATION.cff has version {cited}, and kafka_forensics/version.py has {version}: write the same version into both."
    heading = _HEADING.search((root / "CHANGELOG.md").read_text())
    if heading is None or heading["version"] != version or not _is_date(heading["day"]):
        first = f"begins with {heading[0]!r}" if heading else "has no section"
        yield f"CHANGELOG.md {first}: begin it with '## [{version}] – YYYY-MM-DD', the day of the release."


def next_commands(root: Path) -> list[str]:
    """The commands that publish the checked-out commit."""
    version = version_of(root)
    return [
        f"git tag --annotate v{version} --message 'kafka-forensics {version}'",
        f"git push origin {MAIN} v{version}",
    ]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print refusals to stderr and return 1, or print that the checks passed and return 0."""
    parser = argparse.ArgumentParser(prog="python -m lab.release", description="Check whether this commit can be released.")
    parser.add_argument("--tagged", action="store_true", help="the commit has its tag, on any branch")
    parser.add_argument("--next", action="store_true", help="print the commands that publish the commit")
    options = parser.parse_args(arguments)
    reasons = list(refusals(root, is_tagged=options.tagged))
    for reason in reasons:
        print(f"release: {reason}", file=sys.stderr)
    if reasons:
        return 1
    print(f"release: version, tag, CHANGELOG.md, CITATION.cff and tree of {version_of(root)} are ready")
    if options.next:
        print("release: publish the commit with", *next_commands(root), sep="\n  ")
    return 0


def _git(root: Path, *arguments: str) -> str:
    """The output of a git command; empty if it fails."""
    return subprocess.run(["git", "-C", root, *arguments], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


def _only(pattern: str, path: Path) -> str:
    """The one match of a pattern in a file. Raises ValueError for another number of matches."""
    (value,) = re.findall(pattern, path.read_text(), re.MULTILINE)
    return str(value)


def _is_date(text: str | None) -> bool:
    """Whether a text is a day like 2026-11-29."""
    try:
        return text is not None and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main())
