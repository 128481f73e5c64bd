"""A selected group of tests that runs none must fail a full run, and nothing else may."""

import re
from pathlib import Path

import pytest

MARKERS = """
[pytest]
markers =
    corpora: c
    faults: f
    properties: p
    spark: s
    broker: b
    two_users: t
    isolated: i
    containers: n
    browser: w
"""
ONE_OF_EACH = """
import pytest

@pytest.mark.faults
def test_fault(): pass

@pytest.mark.properties
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
    """A tiny suite below `tests/`, under the project's own conftest, not run by root; its corpora would be beside its folder."""
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
    result.stdout.fnmatch_lines(["groups selected: faults, properties, corpora, spark"])
    result.assert_outcomes(passed=4, deselected=2)
    assert result.ret == 0


def test_absent_corpora_are_deselected_not_skipped(suite: pytest.Pytester) -> None:
    result = run(suite, ONE_OF_EACH, "--require-groups", corpora=False)
    result.stdout.fnmatch_lines(["groups selected: faults, properties, spark"])
    result.assert_outcomes(passed=3, deselected=3)
    assert result.ret == 0


def test_selected_group_that_ran_none_fails_the_full_run(suite: pytest.Pytester) -> None:
    result = run(suite, ONE_OF_EACH.replace("@pytest.mark.faults", ""), "--require-groups")
    result.stdout.fnmatch_lines(["groups selected that ran no test: faults", "*4 passed*"])
    assert result.ret == 1


def test_group_whose_tests_were_all_skipped_ran_none(suite: pytest.Pytester) -> None:
    result = run(suite, ONE_OF_EACH.replace("@pytest.mark.faults", "@pytest.mark.faults\n@pytest.mark.skip"), "--require-groups")
    assert result.ret == 1


def test_partial_run_asks_nothing_of_groups(suite: pytest.Pytester) -> None:
    result = run(suite, "def test_one(): pass")
    assert result.ret == 0


def test_broker_tests_run_on_request(suite: pytest.Pytester) -> None:
    result = run(suite, ONE_OF_EACH, "--broker")
    result.stdout.fnmatch_lines(["groups selected: faults, properties, corpora, spark, broker"])
    result.assert_outcomes(passed=4, failed=1)


@pytest.mark.two_users
def test_root_who_can_become_another_selects_the_tests_of_two_users(suite: pytest.Pytester) -> None:
    conftest = suite.path / "tests" / "conftest.py"
    conftest.write_text(conftest.read_text().replace("1000 != 0", "os.geteuid() != 0"))
    result = run(suite, ONE_OF_EACH, "--require-groups")
    result.stdout.fnmatch_lines(["groups selected: faults, properties, corpora, spark, two_users"])
    result.assert_outcomes(passed=5, deselected=1)
    without = run(suite, ONE_OF_EACH.replace("@pytest.mark.two_users", ""), "--require-groups", corpora=False)
    without.stdout.fnmatch_lines(["groups selected that ran no test: two_users", "*passed*"])
    assert without.ret == 1


CONTAINER = """
import pytest

@pytest.mark.containers
@pytest.mark.nightly
def test_image(): pass
"""


@pytest.mark.parametrize("there", [True, False])
def test_images_are_built_where_an_engine_answers(suite: pytest.Pytester, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = suite.path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexit {int(not there)}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    result = run(suite, CONTAINER, "--nightly", corpora=False)
    result.assert_outcomes(passed=int(there), deselected=int(not there))
    assert ("containers" in result.stdout.str().partition("groups selected:")[2].partition("\n")[0]) is there


BROWSER = CONTAINER.replace("containers", "browser").replace("image", "page")


@pytest.mark.parametrize("names", [("chromium", "npm"), ("chromium",), ("npm",)])
def test_pages_are_opened_where_a_browser_is(
    suite: pytest.Pytester, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in names:
        program = suite.path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(suite.path / "bin"))
    there = len(names) == 2
    run(suite, BROWSER, "--nightly", corpora=False).assert_outcomes(passed=int(there), deselected=int(not there))


def test_images_are_built_nightly_only(suite: pytest.Pytester) -> None:
    result = run(suite, CONTAINER, corpora=False)
    result.assert_outcomes(deselected=1)
