"""`salvage`: output, refusals, and exit statuses."""

import json
from pathlib import Path

import pytest

from tests.cli.runs import Run
from tests.questions.salvage.salvaged import NAME, batches_of
from tests.support.brokers import put_replica, put_segment
from tests.support.places import SAMPLES
from tests.support.segments import batch, flip_bit


def test_a_healthy_topic_is_salvaged_whole_and_json_is_the_manifest(tmp_path: Path, run: Run) -> None:
    output = tmp_path / "out"
    status, out, err = run("salvage", SAMPLES / "healthy", "--topic", "orders", "--output", output, "--format", "json")
    assert status == 0, err
    assert json.loads(out) == json.loads((output / "manifest.json").read_text())
    assert f"salvaged 2 partitions (37.9 kB of segments) to {output}\n" in err
    assert sorted(path.name for path in output.iterdir()) == ["broker-1", "broker-2", "broker-3", "election.json", "manifest.json"]
    assert sorted(path.name for path in (output / "broker-1" / "broker-1").iterdir()) == [
        *("bootstrap.checkpoint", "cleaner-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties"),
        *("orders-0", "orders-1", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
    ]
    assert err.startswith("to be written: 114 kB of segments, in 3 log directories\n")


def test_table_and_markdown_end_with_the_steps(tmp_path: Path, run: Run) -> None:
    for form in ("text", "markdown"):
        out = run("salvage", SAMPLES / "healthy", "--output", tmp_path / form, "--format", form)[1]
        assert f"cp -a {tmp_path}/{form}/broker-N/NAME/. LOG_DIR" in " ".join(out.replace("\\\n", "").split())
        assert [line.startswith("2. Move the given log directories") for line in out.splitlines()].count(True) == 1


def test_refusals_are_reported_with_status_3_in_every_format(tmp_path: Path, run: Run) -> None:
    sample = SAMPLES / "unclean-election"
    for form in ("text", "tsv", "json"):
        status, out, err = run("salvage", sample, "--topic", "audit", "--output", tmp_path / form, "--format", form)
        assert (status, "; 1 partition refused" in err) == (3, True)
        assert "--prefer-broker" in out or form == "tsv"
        assert "from offset 300 on, broker 1 has other committed records than broker 2" in " ".join(out.split())
    status, out, _ = run(
        "salvage", sample, "--topic", "audit", "--prefer-broker", "1", "--output", tmp_path / "out", "--format", "text"
    )
    assert (status, "audit-0    0 to 344" in out) == (0, True)


def test_a_log_with_gaps_is_salvaged_with_allow_gaps(tmp_path: Path, run: Run) -> None:
    batches = batches_of(4)
    put_replica(tmp_path / "in", 1, {0: batches[0] + flip_bit(batches[1], 70) + b"".join(batches[2:])}, high_watermark=8)
    status, out, _ = run("salvage", tmp_path / "in", "--output", tmp_path / "no", "--format", "text")
    assert (status, f"refused {NAME}: no copy has offsets 2 to 3" in out) == (3, True)
    status, out, _ = run("salvage", tmp_path / "in", "--output", tmp_path / "yes", "--allow-gaps", "--format", "text")
    assert (status, "no copy holds 2 offsets of the salvaged partitions" in out, "2 to 3" in out) == (0, True, True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--output", "full"], "is not empty"),
        (["--output", "new", "--prefer-broker", "7"], "no copy belongs to broker 7"),
        (["--output", "no/where"], "its directory does not exist"),
        (["--output", "new", "--format", "prometheus"], "prometheus"),
    ],
)
def test_errors_leave_no_files(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: str) -> None:
    put_replica(tmp_path / "in", 1, batches_of(2))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    monkeypatch.chdir(tmp_path)
    status, _, err = run("salvage", "in", *arguments)
    assert (status, error in err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "in"]


def test_bundles_are_refused_for_lack_of_records(tmp_path: Path, run: Run) -> None:
    bundle = tmp_path / "broker-1.kfb"
    assert run("collect", SAMPLES / "healthy" / "broker-1", "--output", bundle)[0] == 0
    status, _, err = run("salvage", bundle, "--output", tmp_path / "out")
    assert (status, "is a bundle, which has no records" in err) == (2, True)


def test_names_from_evidence_are_escaped(tmp_path: Path, run: Run) -> None:
    put_replica(tmp_path / "in", 1, batches_of(2))
    (tmp_path / "in" / "broker-1").rename(tmp_path / "in" / "broker-\x1b[31m")
    (tmp_path / "in" / "broker-\x1b[31m" / "meta.properties").unlink()
    _, out, err = run("salvage", tmp_path / "in", "--output", tmp_path / "out", "--format", "text")
    assert "\x1b" not in out + err


def test_findings_that_no_copy_has_give_status_1_and_a_refusal_3(tmp_path: Path, run: Run) -> None:
    """A batch was written twice; each copy has lost another one of the two."""
    log = [
        batch(offset, 2, producer_id=7, producer_epoch=0, base_sequence=sequence) for offset, sequence in ((0, 0), (2, 2), (4, 2))
    ]
    for broker, damaged in ((1, 2), (2, 1)):
        data = b"".join(
            flip_bit(data_of_batch, 70) if number == damaged else data_of_batch for number, data_of_batch in enumerate(log)
        )
        put_replica(tmp_path / "in", broker, data, high_watermark=6)
    expected_texts = {
        "text": f"new in {NAME}: DUPLICATE_BATCH 4 to 5 of producer 7\n",
        "tsv": "\tDUPLICATE_BATCH 4 to 5 of producer 7\t",
        "json": '"new"',
    }
    for form, expected in expected_texts.items():
        status, out, _ = run("salvage", tmp_path / "in", "--output", tmp_path / form, "--format", form)
        assert (status, expected in out) == (1, True)
    (partition,) = json.loads((tmp_path / "json" / "manifest.json").read_text())["partitions"]
    assert partition["inherited"] == []
    assert partition["new"] == [
        {"kind": "DUPLICATE_BATCH", "severity": "error", "offset_start": 4, "offset_end": 6, "producer_id": 7}
    ]
    for broker in (1, 2):
        other = tmp_path / "in" / f"broker-{broker}" / "other-0"
        other.mkdir()
        put_segment(other, 0, batch(0, 2) + flip_bit(batch(2, 2), 70) + batch(4, 2))
    status, out, _ = run("salvage", tmp_path / "in", "--output", tmp_path / "out", "--format", "text")
    assert (status, f"new in {NAME}" in out, "refused other-0" in out) == (3, True, True)
