"""What stands beside the package for those who cite it, report a hole in it, or look it up."""

import re
import tomllib
from pathlib import Path

from kafka_forensics.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_is_of_this_version_and_project() -> None:
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    fields = dict(re.findall(r"^([a-z-]+): (.+)$", "\n".join(lines), re.MULTILINE))
    assert fields["cff-version"] == "1.2.0"
    assert (fields["title"], fields["version"], fields["license"]) == (PROJECT["name"], __version__, PROJECT["license"])
    assert PROJECT["description"] in " ".join(line.strip() for line in lines)
    keywords = [line.removeprefix("  - ") for line in lines[lines.index("keywords:") + 1 :]]
    assert keywords == PROJECT["keywords"]
    assert "authors:" in lines
