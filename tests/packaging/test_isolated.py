"""Runs the tool as the container does, without a container: read-only disks but one directory, no network, no home directory."""

import subprocess
import sys
from pathlib import Path

import pytest

from lab.sample_archive import files
from tests.support.nightly import daily_subset
from tests.support.places import ROOT

pytestmark = pytest.mark.isolated
ISOLATE = """
set -e
mount --make-rprivate /
findmnt --list --noheadings --output TARGET | while read -r target; do mount -o remount,bind,ro "$target" 2>/dev/null || true; done
mount -t tmpfs tmpfs "$WRITABLE"
! touch "$ROOT/written" "$HOME_BEFORE/written" 2>/dev/null
cd "$WRITABLE"
"""
"""Shell commands before the tested one; they fail if any other disk is writable."""


def run(writable: Path, command: str, status: int = 0) -> str:
    """Run commands in an empty temporary directory; the last one must end with `status`. Return their stdout."""
    script = f'{ISOLATE}kafka_forensics() {{ "{sys.executable}" -m kafka_forensics "$@"; }}\n{command}'
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(ROOT),
        "ROOT": str(ROOT),
        "WRITABLE": str(writable),
        "HOME_BEFORE": str(Path.home()),
        "HOME": "/nonexistent",
    }
    done = subprocess.run(
        ["unshare", "--mount", "--net", "bash", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_demo_and_scan_need_no_network_no_home_and_no_other_disk(tmp_path: Path) -> None:
    out = run(tmp_path, "kafka_forensics demo samples; kafka_forensics scan --deep --format json samples/unclean-election", 1)
    assert f"{len(dict(files()))} files of four clusters" in out
    assert '"UNCLEAN_LOSS"' in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_evidence_on_a_read_only_disk_is_scanned_and_collected(tmp_path: Path) -> None:
    out = run(tmp_path, 'kafka_forensics scan --format json "$ROOT/sample_logs/silent-divergence"', 1)
    assert '"FORK_BELOW_HW"' in out
    collect = 'kafka_forensics collect -q --live "$ROOT/sample_logs/unclean-election/broker-1" --output broker-1.kfb'
    out = run(tmp_path, f"{collect} && ls; kafka_forensics scan --format tsv broker-1.kfb; ls", 0)
    assert out.startswith("broker-1.kfb\n")
    assert out.endswith("\nbroker-1.kfb\n")
    assert "REPLICA_NOT_GIVEN" in out


LEFTOVERS = {
    "salvage EVIDENCE --output out --topic audit --prefer-broker 2": [],
    "recover EVIDENCE --topic audit --partition 0 --output out": [],
    "collect EVIDENCE/broker-1 --output out.kfb": ["out.kfb.unfinished"],
    "report EVIDENCE --output out.html": [],
    "scan EVIDENCE --format json --output out.json": [],
    "plan EVIDENCE --topic audit --format json --output out.json": [],
}
"""Command → files of its output that stay on a full disk."""


@pytest.mark.parametrize("command", daily_subset({"collect EVIDENCE/broker-1 --output out.kfb"}, LEFTOVERS))
def test_a_full_disk_is_reported_and_leaves_no_partial_output(command: str, tmp_path: Path) -> None:
    """The disk has 16 KiB, or 4 KiB for a plan. The beginning of a bundle stays, and the same command resumes it.

    A salvage reports before it writes that the output would not fit.
    """
    shell_command = command.replace("EVIDENCE", '"$ROOT/sample_logs/unclean-election"')
    size = "4k" if command.startswith("plan") else "16k"
    script = f"""
        mount -o remount,size={size} .
        status=0; output=$(kafka_forensics {shell_command} 2>&1 >/dev/null) || status=$?
        echo "$status"; echo "$output" | grep -cE 'No space left on device: the disk mounted at|, but its disk has .* free'; ls -A
    """
    assert run(tmp_path, script).split() == ["2", "1", *LEFTOVERS[command]]
