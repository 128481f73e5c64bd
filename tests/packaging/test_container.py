"""`Containerfile`: an unprivileged user and only the package; and, if a container engine exists, that the image runs."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics.version import __version__
from tests.conftest import container_engine
from tests.support.places import ROOT

TEXT = (ROOT / "Containerfile").read_text()
LINES = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
IMAGE = "kafka-forensics-test"
PAGE = (ROOT / "docs" / "platforms.md").read_text()
RUN = re.search(r"podman run (.*?) kafka-forensics scan", PAGE, re.DOTALL)
COLLECT = re.search(r"podman run ([^`]*?) kafka-forensics (collect [^`]*?)\n```", PAGE)


def test_the_image_runs_as_an_unprivileged_user() -> None:
    users = [line for line in LINES if line.startswith("USER ")]
    assert users == ["USER 10001:10001"]
    after = LINES[LINES.index(users[0]) :]
    assert [line for line in after if line.startswith(("RUN", "COPY", "ADD"))] == []
    assert after[-2:] == ['ENTRYPOINT ["kafka-forensics"]', 'CMD ["--help"]']
    assert "VOLUME" not in TEXT
    assert "WORKDIR /evidence" in after


def test_the_image_has_only_the_package() -> None:
    copied = {name for line in LINES if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == sent == {"pyproject.toml", "README.md", "LICENSE", "kafka_forensics"}
    assert all((ROOT / name).exists() for name in copied)
    assert not any(line.startswith("ADD") for line in LINES)


def test_the_page_runs_the_image_without_privileges_network_or_disk() -> None:
    assert RUN is not None
    words = RUN[1].replace("\\\n", "").split()
    assert {"--rm", "--read-only", "no-new-privileges"} <= set(words)
    assert words[words.index("--network") + 1] == "none"
    assert words[words.index("--cap-drop") + 1] == "all"
    assert words[words.index("--volume") + 1].endswith(':/evidence:ro"')


@pytest.fixture(scope="module")
def image() -> Iterator[list[str]]:
    """The command of the page that runs the image, without the volume and what follows."""
    engine = container_engine()
    assert engine is not None
    assert RUN is not None
    subprocess.run([engine, "build", "--tag", IMAGE, "--file", "Containerfile", "."], cwd=ROOT, timeout=1500, check=True)
    yield [engine, "run", *RUN[1].partition("--volume")[0].replace("\\\n", "").split()]
    subprocess.run([engine, "rmi", "--force", IMAGE], timeout=60, check=True)


@pytest.mark.nightly
@pytest.mark.containers
@pytest.mark.timeout(1800)
def test_the_image_scans_and_collects_into_a_mounted_directory(image: list[str], tmp_path: Path) -> None:
    version = subprocess.run([*image, IMAGE, "--version"], capture_output=True, text=True, timeout=120, check=True)
    assert version.stdout.startswith(f"kafka-forensics {__version__}\nPython ")
    samples = f"{ROOT / 'sample_logs' / 'unclean-election'}:/evidence:ro"
    done = subprocess.run(
        [*image, "--volume", samples, IMAGE, "scan", "/evidence"], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, "UNCLEAN_LOSS" in done.stdout) == (1, True), done.stderr
    assert COLLECT is not None
    tmp_path.chmod(0o777)  # for the user inside the container
    volumes = ["--volume", f"{ROOT / 'sample_logs' / 'healthy' / 'broker-1'}:/evidence:ro", "--volume", f"{tmp_path}:/bundles"]
    done = subprocess.run([*image, *volumes, IMAGE, *COLLECT[2].split()], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["broker-1.kfb"]
    scanned = [*image, "--volume", f"{tmp_path}:/evidence:ro", IMAGE, "scan", "/evidence/broker-1.kfb"]
    assert subprocess.run(scanned, capture_output=True, timeout=300, check=False).returncode == 0
