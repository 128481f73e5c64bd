"""`Containerfile`: an unprivileged user and only the package; the image runs in an engine, else its steps in a Debian system."""

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kafka_forensics.version import __version__
from lab.containerfile import build
from tests.conftest import container_engine
from tests.support.places import ROOT, SAMPLES

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


Container = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs the image with arguments and volumes, path inside → folder; a path that ends with `/` is writable."""


def check_commands(container: Container, bundles: Path) -> None:
    version = container("--version")
    assert version.stdout.startswith(f"kafka-forensics {__version__}\nPython ")
    assert container().stdout == container("--help").stdout
    scan = container("scan", "/evidence", volumes={"/evidence": SAMPLES / "unclean-election"})
    assert (scan.returncode, "UNCLEAN_LOSS" in scan.stdout) == (1, True), scan.stderr
    for command in (["demo", "../tmp/samples"], ["doctor"]):
        done = container(*command)
        assert done.returncode == 0, done.stderr
    assert COLLECT is not None
    bundles.chmod(0o777)  # for the user inside the container
    collect = container(*COLLECT[2].split(), volumes={"/evidence": SAMPLES / "healthy" / "broker-1", "/bundles/": bundles})
    assert collect.returncode == 0, collect.stderr
    assert [path.name for path in bundles.iterdir()] == ["broker-1.kfb"]
    assert container("scan", "/evidence/broker-1.kfb", volumes={"/evidence": bundles}).returncode == 0
    refused = container("report", "/evidence", "--output", "/evidence/report.html", volumes={"/evidence": bundles})
    assert refused.returncode == 2
    assert not (bundles / "report.html").exists()


@pytest.mark.nightly
@pytest.mark.containers
@pytest.mark.timeout(1800)
def test_the_image_runs_in_an_engine(tmp_path: Path) -> None:
    engine = container_engine()
    assert engine is not None
    assert RUN is not None
    options = RUN[1].partition("--volume")[0].replace("\\\n", "").split()

    def container(*arguments: str, volumes: Mapping[str, Path] = {}) -> "subprocess.CompletedProcess[str]":
        mounts = [f"--volume={outside}:{inside}{'' if inside.endswith('/') else ':ro'}" for inside, outside in volumes.items()]
        command = [engine, "run", *options, *mounts, IMAGE, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    subprocess.run([engine, "build", "--tag", IMAGE, "--file", "Containerfile", "."], cwd=ROOT, timeout=1500, check=True)
    try:
        check_commands(container, tmp_path)
    finally:
        subprocess.run([engine, "rmi", "--force", IMAGE], timeout=60, check=True)


@pytest.mark.nightly
@pytest.mark.debian
@pytest.mark.timeout(1800)
def test_the_steps_of_the_image_run_in_a_debian_system(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        image = build(ROOT / "Containerfile", Path(work))

        def container(*arguments: str, volumes: Mapping[str, Path] = {}) -> "subprocess.CompletedProcess[str]":
            command = image.container(*arguments, volumes=volumes)
            return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

        check_commands(container, tmp_path)
        image.entrypoint = ["sh", "-c"]
        script = "id -u; tail -n +3 /proc/net/dev | cut -d: -f1; grep -E '^(CapBnd|NoNewPrivs)' /proc/self/status; ! touch /cache/x"
        limits = container(script)
        assert limits.returncode == 0, limits.stderr
        assert limits.stdout.split() == ["10001", "lo", "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
        assert "Read-only file system" in limits.stderr
