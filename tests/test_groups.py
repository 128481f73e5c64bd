"""A selected group of tests that runs none fails a full run; nothing else does."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests import conftest

MARKERS = """
[pytest]
markers =
    corpora: c
    faults: f
    spark: s
    broker: b
    two_users: t
    isolated: i
    containers: n
    debian: d
    browser: w
"""
ONE_OF_EACH = """
import pytest

@pytest.mark.faults
def test_fault(): pass

@pytest.mark.hypothesis
def test_property(): pass

@pytest.mark.spark
def test_spark(): pass

@pytest.mark.corpora
def test_corpus(): pass

@pytest.mark.two_users
def test_attack(): pass

@pytest.mark.broker
def test_broker(): assert False, "never without --broker"
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A small suite below `tests/` under the project's conftest, not run as root; its corpora would be next to its folder."""
    pytester.makeini(MARKERS)
    tests = pytester.mkdir("tests")
    own = re.sub(r"pytest_plugins = .*", "", (Path(__file__).parent / "conftest.py").read_text())
    (tests / "conftest.py").write_text(
        own.replace("parents[2]", "parents[1]").replace("os.geteuid()", "1000").replace('"unshare"', '"false"')
    )
    return pytester


def run(suite: pytest.Pytester, source: str, *options: str, corpora: bool = True) -> pytest.RunResult:
    if corpora:
        suite.path.joinpath("shared", "corpora").mkdir(parents=True)
    suite.path.joinpath("tests", "test_some.py").write_text(source)
    return suite.runpytest_subprocess("tests", "-p", "no:cacheprovider", *options)


def test_full_run_passes_when_every_selected_group_ran(suite: pytest.Pytester) -> None:
    result = run(suite, ONE_OF_EACH, "--require-groups")
    result.stdout.fnmatch_lines(["groups selected: faults, hypothesis, corpora, spark"])
    result.assert_outcomes(passed=4, deselected=2)
    assert result.ret == 0


def test_absent_corpora_are_deselected_not_skipped_and_broker_tests_run_on_request(suite: pytest.Pytester) -> None:
    result = run(suite, ONE_OF_EACH, "--broker", corpora=False)
    result.stdout.fnmatch_lines(["groups selected: faults, hypothesis, spark, broker"])
    result.assert_outcomes(passed=3, failed=1, deselected=2)


@pytest.mark.parametrize("instead", ["", "@pytest.mark.faults\n@pytest.mark.skip"])
def test_selected_group_that_ran_none_fails_the_full_run(suite: pytest.Pytester, instead: str) -> None:
    result = run(suite, ONE_OF_EACH.replace("@pytest.mark.faults", instead), "--require-groups")
    result.stdout.fnmatch_lines(["groups selected that ran no test: faults"])
    assert result.ret == 1


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--require-groups=broker"], 0), (["--require-groups=broker,spark"], 1)])
def test_partial_run_requires_only_the_named_groups(suite: pytest.Pytester, options: list[str], status: int) -> None:
    assert run(suite, "def test_one(): pass", *options).ret == status


@pytest.mark.parametrize(
    ("programs", "options", "selected"),
    [
        (("podman", "debootstrap", "chromium", "npm"), ("nightly",), {"containers", "browser"}),
        (("debootstrap",), ("nightly",), {"debian"}),
        (("debootstrap",), (), set()),
        (("podman", "chromium", "npm"), (), set()),
        (("chromium",), ("nightly",), set()),
        (("npm",), ("nightly",), set()),
    ],
)
def test_containers_debian_and_browser_are_selected_nightly_if_their_programs_exist(
    programs: tuple[str, ...], options: tuple[str, ...], selected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for found in (conftest.browser, conftest.container_engine, conftest.replaces_engine):
        monkeypatch.setattr(conftest, found.__name__, found.__wrapped__)
    monkeypatch.setattr(conftest, "second_user", lambda: None)  # cached, like the next
    monkeypatch.setattr(conftest, "can_isolate", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    config = SimpleNamespace(getoption=lambda name: name.removeprefix("--") in options)
    assert {"containers", "debian", "browser"} & {*conftest.selected_groups(cast("pytest.Config", config))} == selected


@pytest.mark.two_users
def test_root_that_can_switch_users_selects_two_users(monkeypatch: pytest.MonkeyPatch) -> None:
    config = cast("pytest.Config", SimpleNamespace(getoption=lambda _: False))
    monkeypatch.setattr(conftest, "second_user", conftest.second_user.__wrapped__)
    monkeypatch.setattr(conftest, "can_isolate", lambda: False)
    assert "two_users" in conftest.selected_groups(config)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "two_users" not in conftest.selected_groups(config)
