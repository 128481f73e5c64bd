"""Hooks for mkdocs (`mkdocs.yml`, `make docs`) that complete the site.

- Every kind of finding gets a page under Findings, the page that `explain` prints; every page of docs/decisions is in the menu.
- A link to a file outside docs/ (`../examples/x.py`), which is valid in a checkout, is changed to that kind's page or to a copy
  of the file on the site.
- A script makes the search work on pages opened as files, where browsers allow no workers; a style sheet makes the copy button
  leave out the output of commands.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.wording import explain_page, title

ROOT: Final = Path(__file__).resolve().parents[1]
KINDS: Final = "kafka_forensics/analysis/kinds"
"""Folder of the kinds' pages in a checkout; on the site it is `findings/`."""
COPIES: Final = "files"
"""Folder of the site for files from outside docs/."""
WORKER_SHIM: Final = "assets/iframe-worker.js"
STYLE: Final = "assets/site.css"
_LINK: Final = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)(?=[)#])")

_SHIM: Final = """\
// On pages opened as files browsers start no workers: the script runs in a hidden frame instead, with the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      inside.importScripts = (...names) => names.reduce((before, name) => before.then(() => this.load(name)), Promise.resolve());
      this.base = new URL(url, location.href);
      this.load(this.base.href).then(() => {
        this.ready = true;
        this.waiting.splice(0).forEach(data => this.deliver(data));
      });
      this.addEventListener("message", event => this.onmessage && this.onmessage(event));
    }
    load(name) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = new URL(name, this.base).href;
        script.onload = done;
        script.onerror = failed;
        this.frame.contentDocument.body.appendChild(script);
      });
    }
    deliver(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data}));
    }
    postMessage(data) {
      if (this.ready) this.deliver(data); else this.waiting.push(data);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
"""


_STYLE: Final = """\
/* What is copied from a console block are its commands, without the prompt and without what they print. */
.highlight .gp, .highlight .go { user-select: none; }
[data-md-copying] .gp, [data-md-copying] .go { display: none; }
/* Drawings are on white paper, in the dark, too. */
.md-typeset img { background: #fff; }
"""


def on_config(config: Any) -> Any:
    """Add the pages that mkdocs.yml does not list to the menu."""
    kinds = [{kind: f"findings/{kind}.md"} for kind in sorted(CATALOGUE)]
    config.nav.append({"Findings": ["findings/index.md", *kinds]})
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{path.name}" for path in decisions]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the kinds, the files that pages link to, and the script."""
    files.append(File.generated(config, "findings/index.md", content=_all_kinds()))
    for kind in CATALOGUE:
        files.append(File.generated(config, f"findings/{kind}.md", content=explain_page(kind)))
    outside: set[str] = set()
    for page in files.documentation_pages():
        if page.abs_src_path is not None:
            text = Path(page.abs_src_path).read_text()
            outside.update(target for target in map(_target, _links(page, text)) if target.startswith("../"))
    for target in sorted(outside):
        path = target.removeprefix("../")
        if not path.startswith(f"{KINDS}/") and (ROOT / path).is_file():
            files.append(File.generated(config, f"{COPIES}/{_on_site(path)}", abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, WORKER_SHIM, content=_SHIM))
    files.append(File.generated(config, STYLE, content=_STYLE))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change links to files outside docs/ to the pages or copies on the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def on_the_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        if not target.startswith("../"):
            return link[1]
        path = target.removeprefix("../")
        kind = re.fullmatch(rf"{KINDS}/([A-Z_0-9]+)\.md", path)
        found = f"findings/{kind[1]}.md" if kind else f"{COPIES}/{_on_site(path)}"
        return posixpath.relpath(found, folder or ".")

    return _LINK.sub(on_the_site, markdown)


def _all_kinds() -> str:
    """The index page of the kinds, most severe first."""
    worst_first = sorted(CATALOGUE.items(), key=lambda item: (-item[1].severity.rank, item[0]))
    rows = [
        f"| [`{kind}`]({kind}.md) | {usual.severity.value} | {usual.confidence.value} | {title(kind)} |"
        for kind, usual in worst_first
    ]
    heads = "| kind | severity, usually | confidence, usually | what it is |\n|---|---|---|---|"
    return "\n".join(["# Findings", "", "What `kafka-forensics explain KIND` says, page by page.", "", heads, *rows, ""])


def _links(page: Any, text: str) -> list[tuple[str, str]]:
    return [(posixpath.dirname(page.src_uri), link) for link in _LINK.findall(text)]


def _target(link: tuple[str, str]) -> str:
    """The target of a page's link, relative to docs/."""
    return posixpath.normpath(posixpath.join(*link))


def _on_site(path: str) -> str:
    """The path of a copied file on the site; Markdown is served as text."""
    return f"{path}.txt" if path.endswith(".md") else path
