"""Report pages in Chromium make no requests, run nothing from evidence, and have no violations that axe-core finds."""

import html
import json
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.report import PageFacts, ReportOptions, report
from kafka_forensics.report.document import document_of
from kafka_forensics.report.page import Provenance, page
from tests.conftest import browser
from tests.report.pages import Page, results_with_loss
from tests.report.test_page import json_of, read
from tests.support.places import GOLDEN, SAMPLES
from tests.support.results import partition, replica, unclean_result

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

SAMPLE: Final = SAMPLES / "unclean-election"
AXE: Final = "axe-core@4.14.1"
MARK: Final = "document.documentElement.dataset.ran=1"
ATTACKS: Final = (
    f"<script>{MARK}</script>",
    f"</style></svg></title><script>{MARK}</script>",
    f'"><img src=http://evil.test/i onerror="{MARK}">',
    f"' onmouseover='{MARK}' autofocus onfocus='{MARK}' tabindex='0",
    f"<svg onload={MARK}><use href='http://evil.test/u#x'/></svg>",
    f"javascript:{MARK}",
    "<link rel=stylesheet href=http://evil.test/s><style>@import 'http://evil.test/c'</style>",
    "<iframe src=http://evil.test/f></iframe><meta http-equiv=refresh content='0;url=http://evil.test/r'>",
    "{{ 7 * 7 }}{% include 'page.css' %}",
)


class RecordingServer(ThreadingHTTPServer):
    """A server for every host name, with the paths of all requests."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), RequestRecorder)


class RequestRecorder(BaseHTTPRequestHandler):
    """Records and answers every request."""

    server: RecordingServer

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def network() -> Iterator[RecordingServer]:
    """The server that all host names resolve to."""
    server = RecordingServer()
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def dom_of(path: Path, *options: str, network: RecordingServer | None = None) -> str:
    """The DOM of a page that Chromium has loaded; all host names resolve to `network`."""
    program = browser()
    assert program is not None
    names = [] if network is None else [f"--host-resolver-rules=MAP * 127.0.0.1:{network.server_address[1]}"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-gpu"]
    quiet.append("--disable-features=NetworkTimeServiceQuerying")  # Chromium asks a time server
    profile = f"--user-data-dir={path.parent / 'profile'}"
    command = [program, "--headless", "--no-sandbox", profile, *quiet, *names, "--virtual-time-budget=60000", *options]
    return subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=300, check=True).stdout


def write_page(folder: Path, text: str) -> Path:
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


def incident_page(name: str) -> str:
    """The page of an incident on real brokers."""
    reported = report([str(GOLDEN / "incidents" / f"{name}.tar.xz")], ScanOptions(), ReportOptions())
    return page(document_of(reported.result), reported.facts, Provenance())


def sample_page() -> str:
    reported = report([str(SAMPLE)], ScanOptions(), ReportOptions(payloads=True, hashes=True))
    return page(document_of(reported.result), reported.facts, Provenance(next_command=f"kafka-forensics plan {SAMPLE}"))


def large_page(partitions: int = 600, topics: int = 40) -> str:
    """A page with many partitions, groups and topics."""
    result, facts = results_with_loss(partitions, topics)
    for number, row in enumerate(result.partitions[:30]):
        row.leader = number % 3 + 1
    return page(document_of(result), facts, Provenance())


def hostile_page() -> str:
    """A page of evidence with an attack in every name."""
    result = unclean_result()
    for number, attack in enumerate(ATTACKS):
        replicas = [replica(attack, 9, log_dir=attack), replica(2, 9)]
        summary = partition(attack, number, result.partitions[0].agreement, replicas, [])
        summary.high_watermark_witness, summary.topic_id, summary.cleanup_policy = attack, attack, attack
        result.partitions.append(summary)
    objects = json_of(result)
    objects["findings"] += [
        objects["findings"][0] | {"kind": attack, "message": attack, "advice": attack, "topic": attack, "partition": number}
        for number, attack in enumerate(ATTACKS)
    ]
    objects["incomplete"] = [{"path": attack, "reason": attack} for attack in ATTACKS]
    objects["input"]["brokers"] += [
        {"broker": attack, "cluster_id": attack, "log_dirs": [attack], "clean_shutdown": True} for attack in ATTACKS
    ]
    provenance = Provenance(command=" ".join(ATTACKS), next_command=ATTACKS[0], document=ATTACKS[0])
    return page(read(objects), PageFacts(), provenance)


def test_the_page_makes_no_requests_and_runs_no_script(tmp_path: Path, network: RecordingServer) -> None:
    for text in (hostile_page(), sample_page()):
        dom = dom_of(write_page(tmp_path, text), "--dump-dom", network=network)
        assert network.paths == []
        assert "data-ran" not in dom.partition("<head>")[0]
        assert "What this does not prove" in dom
    assert "{{ 7 * 7 }}" in Page(hostile_page()).text


def test_the_policy_blocks_injected_content(tmp_path: Path, network: RecordingServer) -> None:
    injected = hostile_page().replace("</main>", f'<img src="http://evil.test/i" alt="x"><script>{MARK}</script></main>')
    without_policy = re.sub('<meta http-equiv="Content-Security-Policy".*?>', "", injected)
    for text, requests in ((injected, []), (without_policy, ["/i"])):
        dom = dom_of(write_page(tmp_path, text), "--dump-dom", network=network)
        assert network.paths == requests
        assert ("data-ran" in dom.partition("<head>")[0]) == bool(requests)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True, timeout=300)
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        source = packed.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


@pytest.mark.parametrize("scheme", [[], ["--blink-settings=preferredColorScheme=0"]], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(
    "make",
    [
        sample_page,
        large_page,
        partial(large_page, 10_000, 300),
        *(partial(incident_page, name) for name in ("unclean-127", "wiped-disk", "stuck-readers")),
    ],
    ids=["sample", "large", "10,000 partitions", "unclean-127", "wiped-disk", "stuck-readers"],
)
def test_axe_finds_no_violations(tmp_path: Path, axe: str, make: Callable[[], str], width: int, scheme: list[str]) -> None:
    text = re.sub('<meta http-equiv="Content-Security-Policy".*?>', "", make()).replace("<details>", "<details open>")
    run = (
        'axe.run({exclude: ["#axe"]}, {resultTypes: ["violations"]}).then(found => {'
        'document.getElementById("axe").textContent = JSON.stringify('
        "[found.passes.length, found.violations.map(rule => [rule.id, rule.nodes.length, rule.nodes[0].html])])})"
    )
    source = axe.replace("</script", "<\\/script")
    dom = dom_of(
        write_page(
            tmp_path, text.replace("</body>", f'<script>{source}</script><pre id="axe"></pre><script>{run}</script></body>')
        ),
        "--dump-dom",
        f"--window-size={width},900",
        *scheme,
    )
    output = re.search('<pre id="axe">(.*?)</pre>', dom, re.DOTALL)
    assert output is not None
    passed, violations = json.loads(html.unescape(output[1]))
    assert violations == []
    assert passed > 20
