"""Links lead to existing files and drawings are up to date; the site is complete and loads nothing from other hosts."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.cli.main import GROUPS, SECTIONS
from lab.doc_blocks import pages
from lab.doc_pictures import FOLDER, pictures
from tests.support.places import ROOT

DOCS = ROOT / "docs"
INCIDENTS = (
    *("lost-data", "replicas-differ", "lso-stuck", "newest-records", "broker-does-not-start"),
    *("unclean-election", "disk-replaced", "backup-restored", "tiered-records"),
)
HEADINGS = ("## What to copy", "## Run", "## How to read it", "## Do first", "## Do not", "## What it cannot prove")
LINK = re.compile(r"\]\(([^)\s]+)\)")
LOADING_ATTRIBUTES = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}


class LoadedPlaces(HTMLParser):
    """Collects what a browser loads for a page without a click."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.places += [value for name, value in attrs if (tag, name) in LOADING_ATTRIBUTES and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in a temporary folder."""
    folder = tmp_path_factory.mktemp("site") / "site"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "WARNING" in done.stderr, "ERROR" in done.stderr) == (0, False, False), done.stderr
    return folder


def html_files(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


@pytest.mark.nightly
def test_every_page_is_on_the_site_and_can_be_searched_without_a_server(site: Path) -> None:
    built = {path.relative_to(site).as_posix() for path in html_files(site)}
    expected = {page.removeprefix("docs/").replace(".md", ".html") for page in pages() if page.startswith("docs/")}
    expected = {page.replace("README.html", "index.html") for page in expected} | {f"findings/{kind}.html" for kind in CATALOGUE}
    assert built == expected | {"404.html", "findings/index.html"}
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert {"My broker lost data", "UNCLEAN_LOSS", "Glossary"} <= {document["title"] for document in index["docs"]}
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = ")
    assert 'location.protocol === "file:"' in (site / "assets" / "iframe-worker.js").read_text()


@pytest.mark.nightly
def test_nothing_is_loaded_from_another_host_and_links_lead_to_the_site(site: Path) -> None:
    """The script of the theme loads mermaid for diagrams and data of a repository, which no page has, and a polyfill of
    ResizeObserver for browsers before 2020.
    """
    for path in html_files(site):
        text = path.read_text()
        parser = LoadedPlaces()
        parser.feed(text)
        assert parser.places, path
        assert [place for place in parser.places if re.match(r"(?:[a-z]+:)?//", place)] == [], path
        assert 'class="mermaid"' not in text
        assert 'data-md-component="source"' not in text
        links = re.findall(r'<a [^>]*href="([^"#?]+)', text)
        missing = [link for link in links if "://" not in link and path.name != "404.html" and not (path.parent / link).exists()]
        assert missing == [], path
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", path.read_text()) == [], path
    places = re.compile(r"[\"'`](?:https?:)?//([a-z0-9-]+(?:\.[a-z0-9-]+)+(?:/\w+)?)", re.IGNORECASE)
    named = {place for path in site.rglob("*.js") if path.parent.name != "search" for place in places.findall(path.read_text())}
    forge_hosts = {place for place in named if place.partition("/")[0] in ("api.github.com", "github.com", "gitlab.com")}
    assert named - forge_hosts <= {"www.w3.org/1999", "www.w3.org/2000", "unpkg.com/mermaid", "unpkg.com/resize"}


def test_links_lead_to_files_of_the_repository() -> None:
    for page in [*pages(), "SECURITY.md", "CONTRIBUTING.md"]:
        links = [link.partition("#")[0] for link in LINK.findall((ROOT / page).read_text()) if "://" not in link]
        assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == [], page


def test_a_page_of_an_incident_has_every_section() -> None:
    assert {path.stem for path in (DOCS / "when").iterdir()} == set(INCIDENTS)
    for name in INCIDENTS:
        text = (DOCS / "when" / f"{name}.md").read_text()
        assert "**You see:**" in text, name
        places = [text.index(f"\n{section}\n") for section in HEADINGS]
        assert places == sorted(places), name
        assert f"(when/{name}.md)" in (DOCS / "README.md").read_text(), name


def test_the_page_of_commands_has_every_command_in_its_section() -> None:
    names = {section: list(commands) for section, commands in SECTIONS.items()}
    names["Learn"] += [f"{group} {name}" for group, (commands, _) in GROUPS.items() for name in commands]
    page = (DOCS / "commands.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(names)
    for section, text in sections.items():
        assert re.findall(r"^### (.+)$", text, re.MULTILINE) == names[section]
        assert re.findall(r"^\$ kafka-forensics (.+) --help$", text, re.MULTILINE) == names[section]
        assert [name.replace(" ", "-") for name in names[section]] == re.findall(r"^\| \[`.+?`\]\(#(.+?)\)", text, re.MULTILINE)


def test_drawings_are_up_to_date() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == pictures()


def test_every_drawing_is_svg_with_a_title_and_is_shown_on_a_page() -> None:
    text = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    for path in FOLDER.iterdir():
        title = ET.fromstring(path.read_text()).find("{http://www.w3.org/2000/svg}title")  # noqa: S314 - a file of this repository
        assert title is not None
        assert title.text
        assert f"pictures/{path.name})" in text
