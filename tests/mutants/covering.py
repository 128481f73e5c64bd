"""A pytest plugin that records the tests that run each line, and their seconds, for `python -m tests.mutants`.

Lines that run during the setup of a module or session fixture count for every test that uses it.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["COVERING_FOLDER"])
"""Folder of coverage data and test names, one file of each per process."""
SOURCES = json.loads(os.environ["COVERING_SOURCES"])
COVERAGE = coverage.Coverage(data_file=FOLDER / "coverage", data_suffix=True, source=SOURCES, config_file=False)
SECONDS: defaultdict[str, float] = defaultdict(float)
FIXTURES: dict[str, list[str]] = {}
CONTEXTS = [""]


def _enter(context: str) -> None:
    CONTEXTS.append(context)
    COVERAGE.switch_context(context)


def _leave() -> None:
    CONTEXTS.pop()
    COVERAGE.switch_context(CONTEXTS[-1])


def pytest_configure() -> None:
    COVERAGE.start()


def pytest_unconfigure() -> None:
    COVERAGE.stop()
    if not FIXTURES:  # the xdist controller
        return
    COVERAGE.save()
    tests = {test: [SECONDS[test], fixtures] for test, fixtures in FIXTURES.items()}
    (FOLDER / f"tests-{os.getpid()}.json").write_text(json.dumps(tests))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    info = getattr(item, "_fixtureinfo", None)
    definitions = [found[-1] for found in info.name2fixturedefs.values()] if info is not None else []
    FIXTURES[item.nodeid] = [_context_of(definition) for definition in definitions if definition.scope != "function"]
    _enter(item.nodeid)
    try:
        return (yield)
    finally:
        _leave()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: "pytest.FixtureDef[object]") -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    _enter(_context_of(fixturedef))
    try:
        return (yield)
    finally:
        _leave()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS[report.nodeid] += report.duration


def _context_of(fixture: "pytest.FixtureDef[object]") -> str:
    return f"fixture {fixture.baseid} {fixture.argname}"
