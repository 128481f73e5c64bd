"""What `make release` refuses, in a small repository."""

import subprocess
from pathlib import Path

import pytest

from lab.release import main, refusals

FILES = {
    "kafka_forensics/version.py": '"""The version."""\n\n__version__ = "1.2.0"\n',
    "CITATION.cff": "cff-version: 1.2.0\nversion: 1.2.0\n",
    "CHANGELOG.md": "# Changelog\n\n## [1.2.0] – 2026-11-30\n\n- New.\n\n## [1.1.0] – 2026-10-01\n\n- Old.\n",
}
COMMANDS = ["  git tag --annotate v1.2.0 --message 'kafka-forensics 1.2.0'", "  git push origin main v1.2.0"]


def git(root: Path, *arguments: str) -> None:
    identity = [
        "-c",
        "user.name=Tester",
        "-c",
        "user.email=tester@example.com",
        "-c",
        "tag.gpgSign=false",
        "-c",
        "commit.gpgSign=false",
    ]
    subprocess.run(["git", "-C", root, *identity, *arguments], check=True, capture_output=True)


def commit(root: Path, **changed: str) -> None:
    """Commit FILES with other content for some, by file stem."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(changed.get(path.stem.lower(), text))
    git(root, "add", "--all")
    git(root, "commit", "--allow-empty", "--message", "Release")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--initial-branch=main")
    commit(tmp_path)
    return tmp_path


def test_a_ready_commit_gets_the_commands_that_publish_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], root) == 0
    assert "git tag" not in capsys.readouterr().out
    assert main(["--next"], root) == 0
    assert capsys.readouterr().out.splitlines()[2:] == COMMANDS


def test_a_version_is_released_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(root, "tag", "--annotate", "v1.2.0", "--message", "Release")
    assert main([], root) == 1
    assert capsys.readouterr().err.startswith("release: Tag v1.2.0 exists: raise the version ")


@pytest.mark.parametrize("options", [("--annotate", "--message", "Release"), ()])
def test_a_tagged_commit_has_its_version_as_tag_on_any_branch(root: Path, options: tuple[str, ...]) -> None:
    (reason,) = refusals(root, is_tagged=True)
    assert reason.startswith("The checked-out commit has version 1.2.0 and no tag v1.2.0: ")
    git(root, "tag", *options, "v1.2.0")
    git(root, "checkout", "--detach")
    assert list(refusals(root, is_tagged=True)) == []
    commit(root)
    (reason,) = refusals(root, is_tagged=True)
    assert "no tag v1.2.0" in reason


@pytest.mark.parametrize(("arguments", "name"), [(("checkout", "-b", "fix"), "fix"), (("checkout", "--detach"), "no branch")])
def test_a_release_starts_from_main(root: Path, arguments: tuple[str, ...], name: str) -> None:
    git(root, *arguments)
    (reason,) = refusals(root)
    assert reason == f"A release starts from branch main, and this is {name}: check out main."


def test_the_tree_is_clean(root: Path) -> None:
    expected = ["The working tree differs from the commit: commit or remove what `git status` lists."]
    (root / "new").touch()
    assert list(refusals(root)) == expected
    (root / "new").unlink()
    (root / "CHANGELOG.md").write_text(FILES["CHANGELOG.md"] + "\n")
    assert list(refusals(root)) == expected


def test_the_citation_has_the_version(root: Path) -> None:
    commit(root, citation="cff-version: 1.2.0\nversion: 1.1.0\n")
    (reason,) = refusals(root)
    assert reason.startswith("CITATION.cff has version 1.1.0, and kafka_forensics/version.py has 1.2.0: ")


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("## [1.1.0] – 2026-10-01\n", "begins with '## [1.1.0] – 2026-10-01'"),
        ("## [1.2.0] – not released yet\n", "begins with '## [1.2.0] – not released yet'"),
        ("## [1.2.0]\n", "begins with '## [1.2.0]'"),
        ("## [1.2.0] – 2026-02-30\n", "begins with '## [1.2.0] – 2026-02-30'"),
        ("## [1.2.0] – 20261130\n", "begins with '## [1.2.0] – 20261130'"),
        ("## [Unreleased]\n\n## [1.2.0] – 2026-11-30\n", "begins with '## [Unreleased]'"),
        ("# Changelog\n", "has no section"),
    ],
)
def test_the_changelog_begins_with_the_version_and_its_day(root: Path, text: str, first: str) -> None:
    commit(root, changelog=text)
    (reason,) = refusals(root)
    assert reason == f"CHANGELOG.md {first}: begin it with '## [1.2.0] – YYYY-MM-DD', the day of the release."


def test_every_reason_is_printed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(root, version='__version__ = "1.3.0"\n')
    git(root, "checkout", "-b", "fix")
    assert main(["--next"], root) == 1
    printed = capsys.readouterr()
    assert [line.startswith("release: ") for line in printed.err.splitlines()] == [True] * 3
    assert printed.out == ""
