"""Every code block of README.md and docs/ prints what its page shows; blocks that are not run are listed here with a reason."""

import re
import shutil
from pathlib import Path

import pytest

from lab.doc_blocks import RUN, SHOWN, DocumentError, PageRunner, blocks, blocks_of, holds_a_command, pages, updated_page
from tests.support.nightly import daily_subset
from tests.support.places import ROOT, SAMPLES

PAGES = pages()
STORAGE = "it needs object storage; tests/storage/remote reads from a server on loopback"
SPARK_COMMANDS = "it needs Spark; tests/spark runs such commands"
ACCOUNT = "it needs an account of the service"

NOT_RUN = {
    ("docs/bundle-tool.md", "it needs a network; tests/packaging/test_bundle_tool.py makes the file in make nightly"): 1,
    ("docs/bundle-tool.md", "the file must be made first; tests/packaging/test_bundle_tool.py runs it in make nightly"): 1,
    ("docs/changes.md", STORAGE): 1,
    ("docs/clusters.md", ACCOUNT): 1,
    ("docs/clusters.md", "it needs a container engine and an account"): 1,
    ("docs/clusters.md", "it builds an environment of 200 MB; tests/spark/test_packed_environment.py runs it in make nightly"): 1,
    ("docs/datasets.md", "it needs Spark; tests/spark/test_export_append.py reads a dataset so"): 1,
    ("docs/datasets.md", "it needs object storage; tests/export/test_append_remote.py writes to a server on loopback"): 1,
    ("docs/datasets.md", SPARK_COMMANDS): 1,
    ("docs/protocols.md", "each takes some seconds; tests/simulation counts the states of every protocol"): 1,
    ("docs/recover.md", "it needs a cluster; tests/broker/test_from_loss_to_verified.py runs it on one"): 1,
    ("docs/quick-start.md", "it installs into the environment that runs it"): 1,
    ("docs/spark.md", SPARK_COMMANDS): 2,
    ("docs/spark.md", "it needs Spark; tests/spark/test_tables.py runs such statements"): 1,
    ("docs/storage.md", STORAGE): 2,
}
"""(page, reason) → number of its blocks that are not run for this reason. Other blocks that are not run fail the test."""
RUN_BY_TEST = {
    ("docs/clusters.md", "tests/examples/test_clusters_page.py"): 6,
    ("docs/datasets.md", "tests/export/test_datasets_page.py"): 4,
    ("docs/platforms.md", "tests/packaging/test_container.py"): 2,
    ("docs/recovery-walkthrough.md", "tests/broker/test_from_loss_to_verified.py"): 6,
    ("docs/spark.md", "tests/spark/test_spark_page.py"): 4,
    ("docs/sql.md", "tests/export/test_sql_page.py"): 3,
}
"""(page, test) → number of its blocks that the test runs."""

MOST_LINES_OF_README = 60

ALL_BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def counted(name: str) -> dict[tuple[str, str], int]:
    """(page, text of its note `name`) → number of its blocks with this note."""
    counts: dict[tuple[str, str], int] = {}
    for block in ALL_BLOCKS:
        note = block.note(name)
        if note is not None:
            counts[block.page, note] = counts.get((block.page, note), 0) + 1
    return counts


def test_blocks_that_are_not_run_have_a_listed_reason() -> None:
    assert counted("not run") == NOT_RUN


def test_blocks_that_another_test_runs_are_in_that_test() -> None:
    assert counted("run by") == RUN_BY_TEST
    for page, test in RUN_BY_TEST:
        assert f'{Path(page).name}"' in (ROOT / test).read_text()


def test_no_block_is_ignored() -> None:
    """No indented fence, no block of an unknown language, no command in a block that is only shown."""
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) == 2 * len(blocks_of(page)), page
    assert [block.place for block in ALL_BLOCKS if block.language not in (*RUN, *SHOWN)] == []
    assert [block.place for block in ALL_BLOCKS if block.language in SHOWN and holds_a_command(block)] == []
    assert sum(block.is_run for block in ALL_BLOCKS) > 60


def test_the_readme_shows_a_verdict_on_one_screen_and_runs_its_blocks() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= MOST_LINES_OF_README
    assert [line for line in lines if len(line) > 80] == []
    run = [block for block in blocks_of("README.md") if block.is_run]
    assert [block.language for block in run] == ["console", "sh"]
    assert "unclean election" in run[0].body


@pytest.mark.parametrize(
    "page",
    daily_subset({"README.md", "docs/quick-start.md"}, [page for page in PAGES if any(block.is_run for block in blocks_of(page))]),
)
def test_a_page_shows_the_output_of_its_commands(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text()
    shutil.copytree(SAMPLES, tmp_path / "sample_logs")
    assert updated_page(page, text, PageRunner(tmp_path)) == text, f"python -m lab.doc_blocks {page}"


def test_comments_above_a_block_are_its_notes() -> None:
    text = "<!-- given: mkdir a -->\n<!-- given: mkdir b -->\n<!-- exit: 1 -->\n```console\n$ true\n```\n"
    [(_, block)] = blocks("page.md", text)
    assert (block.notes, block.line) == ({"given": ["mkdir a", "mkdir b"], "exit": ["1"]}, 4)


@pytest.mark.parametrize(
    ("notes", "old", "new"),
    [
        ("", "$ echo a; echo b\nold\n$ echo c\n", "$ echo a; echo b\na\nb\n$ echo c\nc\n"),
        ("<!-- from: 2 -->\n<!-- until: 4 -->\n", "$ seq 1 5\n", "$ seq 1 5\n…\n2\n3\n…\n"),
    ],
)
def test_output_is_written_below_the_command(tmp_path: Path, notes: str, old: str, new: str) -> None:
    page = updated_page("page.md", f"{notes}```console\n{old}```\n", PageRunner(tmp_path))
    assert page == f"{notes}```console\n{new}```\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```console\n$ false\n```\n", "ended with 1 instead of 0"),
        ("<!-- exit: 1 -->\n```sh\ntrue\n```\n", "ended with 0 instead of 1"),
        ("<!-- exit: 0 1 -->\n```sh\ntrue\ntrue\n```\n", "ended with 0 instead of 1"),
        ("```console\n$ kafka-forensics scan nowhere\n```\n", "ended with 2 instead of 0"),
        ("<!-- from: 9 -->\n```console\n$ seq 1 5\n```\n", "no line holds '9'"),
        ("```console\noutput\n```\n", "begins with"),
        ("```sh\nkafka-forensics scan a --engine spark\n```\n", "Spark runs in tests/spark alone"),
    ],
)
def test_a_block_with_another_result_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=message):
        updated_page("page.md", text, PageRunner(tmp_path))


def test_a_failing_python_block_raises(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        updated_page("page.md", "```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", PageRunner(tmp_path))
