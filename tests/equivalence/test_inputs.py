"""Archives and bundles of eight trees, and scans divided among threads and tasks, give the JSON of the plain tree."""

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap, collect
from kafka_forensics.scanning.engine import local
from kafka_forensics.scanning.folding import splits
from tests.equivalence.conftest import MakeTree, Tree
from tests.equivalence.documents import text, without_order, without_payloads
from tests.equivalence.trees import NEEDS_RECORDS, SECTIONS_OF, put_together
from tests.export.facts.test_facts_spans import assert_tiled
from tests.gallery.cases import SECTIONS
from tests.scanning.engine import task_engine
from tests.storage.trees import zstd
from tests.support.bundles import replace_pseudonyms

COMPACTED = {"compacted": "t"}
"""Tree → topics whose records are hashed although no cleaner checkpoint shows that they are compacted."""
KINDS = {
    "batches": 28,
    "files": 19,
    "replicas": 12,
    "compacted": 9,
    "transactions": 7,
    "incidents": 20,
    "tiered": 8,
    "controllers": 6,
}
"""Tree → minimum number of kinds of findings; with fewer it would compare little."""


def test_the_trees_have_many_kinds_of_findings(tree: Tree) -> None:
    assert len({finding.kind for finding in tree.result.findings}) >= KINDS[tree.name]
    assert tree.result.incomplete == []


def as_tar_zst(root: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        tar.add(root, ".")
    archive.write_bytes(zstd(archive.read_bytes()))


def as_zip(root: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(root.rglob("*")):
            packed.write(path, path.relative_to(root))


@pytest.mark.parametrize(("name", "pack"), [("copies.tar.zst", as_tar_zst), ("copies.zip", as_zip)], ids=["tar.zst", "zip"])
def test_archives_give_the_same(tree: Tree, tmp_path: Path, name: str, pack: Callable[[Path, Path], None]) -> None:
    pack(tree.root, tmp_path / name)
    assert text(local.scan([str(tmp_path / name)], ScanOptions(jobs=1)), tmp_path / name) == text(tree.result, tree.root)


def collected(root: Path, to: Path, options: CollectOptions) -> Path:
    """Write a folder of bundles, one per log directory."""
    to.mkdir()
    for log_dir in sorted(root.iterdir()):
        with (to / f"{log_dir.name}.kfb").open("w+b") as bundle:
            collect([str(log_dir)], options, bundle)
    return to


@pytest.mark.parametrize("name", SECTIONS_OF)
def test_bundles_give_the_same(name: str, make_tree: MakeTree, tmp_path: Path) -> None:
    """With every case, because bundles store logs in another format, which has a separate reader."""
    tree = make_tree(name, every=True)
    bundles = collected(tree.root, tmp_path / "bundles", CollectOptions(ScanOptions(jobs=1), compacted=COMPACTED.get(name)))
    scanned = local.scan([str(bundles)], ScanOptions(jobs=1))
    assert without_payloads(scanned, bundles) == without_payloads(tree.result, tree.root)


@pytest.mark.parametrize("name", SECTIONS_OF)
def test_bundles_with_pseudonyms_give_the_same(name: str, make_tree: MakeTree, tmp_path: Path) -> None:
    tree = make_tree(name, every=True)
    names: dict[str, tuple[str, str]] = {}
    options = CollectOptions(ScanOptions(jobs=1), compacted=COMPACTED.get(name), pseudonyms=PseudonymMap("00" * 32, names))
    bundles = collected(tree.root, tmp_path / "bundles", options)
    scanned = replace_pseudonyms(without_payloads(local.scan([str(bundles)], ScanOptions(jobs=1)), bundles), names)
    assert without_order(scanned) == without_order(without_payloads(tree.result, tree.root))


def test_a_bundle_names_the_records_that_it_would_need(tmp_path: Path) -> None:
    make_tree = [case.make for cases in SECTIONS.values() for case in cases if case.injected in NEEDS_RECORDS]
    root = put_together(tmp_path / "tree", make_tree)
    bundles = collected(root, tmp_path / "bundles", CollectOptions())
    expected, scanned = local.scan([str(root)], ScanOptions()), local.scan([str(bundles)], ScanOptions())
    assert {gap.reason.split(":")[0] for gap in scanned.incomplete} == {"needs the records"}
    rows_of_both = [
        [(finding.kind, finding.severity, finding.place.partition, finding.evidence.get("held_by")) for finding in result.findings]
        for result in (expected, scanned)
    ]
    assert rows_of_both[1] == [row for row in rows_of_both[0] if row[0] != "KEY_PLACEMENT"]
    assert len({partition for _, _, partition, _ in rows_of_both[1]}) == len(NEEDS_RECORDS)


def test_threads_give_the_same(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment is folded in several splits."""
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", "compiled")  # interpreted kernels do not use threads
    monkeypatch.setattr(splits, "SPLIT_BYTES", 3000)
    assert text(local.scan([str(tree.root)], ScanOptions(jobs=3)), tree.root) == text(tree.result, tree.root)


@pytest.mark.parametrize(
    "sizes",
    [
        {"split_bytes": 1500, "work_bytes": 3000, "seed": 7, "deferred_keys_bytes": 0},
        {"small_bytes": 20_000, "work_bytes": 1, "deferred_keys_bytes": 0},
    ],
    ids=["split", "whole"],
)
def test_tasks_in_any_order_give_the_same(tree: Tree, sizes: dict[str, int]) -> None:
    """Folds, judgements and keys of compacted partitions run as tasks with serialized arguments and results, as on a cluster."""
    assert text(task_engine.scan([str(tree.root)], ScanOptions(), **sizes), tree.root) == text(tree.result, tree.root)


@pytest.mark.parametrize("name", SECTIONS_OF)
def test_spans_tile_the_files(name: str, make_tree: MakeTree) -> None:
    """Spans tile every file, and their sums equal the totals of the scan."""
    assert_tiled([make_tree(name, every=True).root])
