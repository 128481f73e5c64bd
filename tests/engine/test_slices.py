"""What judging one partition elsewhere leaves to be remembered here."""

import tarfile
from pathlib import Path

from kafka_forensics.engine import local
from kafka_forensics.engine.task_values import inputs_of, noticed, slices, surroundings
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import Incomplete
from tests.support import task_engine
from tests.support.replicas import put_replica
from tests.support.segments import log


def cut_archive(folder: Path) -> Path:
    """A tar of two replicas of one partition that ends in the middle of the second."""
    for broker in (1, 2):
        put_replica(folder / "brokers", broker, b"".join(log(40)), high_watermark=80)
    whole = folder / "whole.tar"
    with tarfile.open(whole, "w") as archive:
        for path in sorted((folder / "brokers").rglob("*")):
            archive.add(path, str(path.relative_to(folder / "brokers")), recursive=False)
    cut = folder / "cut.tar"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return cut


def test_what_is_wrong_with_an_archive_is_noticed_with_the_archives_name_first(tmp_path: Path) -> None:
    path = str(cut_archive(tmp_path))
    inputs = gather([path], ScanOptions())
    (source,) = inputs.sources
    assert len(source.problems) == 1
    (part,) = slices(inputs)
    assert noticed(inputs_of(part, surroundings(inputs))).incomplete == [Incomplete(path, source.problems[0])]


def test_the_same_is_incomplete_wherever_a_partition_is_judged(tmp_path: Path) -> None:
    path = str(cut_archive(tmp_path))
    here, elsewhere = local.scan([path], ScanOptions()), task_engine.scan([path], ScanOptions())
    assert [incomplete.path for incomplete in here.incomplete] == [path]
    assert elsewhere.incomplete == here.incomplete
