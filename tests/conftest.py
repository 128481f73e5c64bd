"""Selects groups of tests, and checks that a selected group ran; the corpora; Hypothesis profiles; shared fixtures."""

import os
import pwd
import re
import shutil
import signal
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

    from tests.support.object_stores import S3Proxy, S3Server

pytest_plugins = ("pytester", "tests.support.evidence_schema")

CORPORA = Path(__file__).resolve().parents[2] / "shared" / "corpora"
SHIPPED = Path(__file__).resolve().parent / "archives"
GROUPS = ("faults", "hypothesis", "corpora", "spark", "broker", "two_users", "isolated", "containers", "debian", "browser")
OF_ALL_BROKERS = ("real_base", "broker_story", "broker_copies")
"""Shared fixtures of `broker/conftest.py`."""
RAN: Counter[str] = Counter()
MILLISECONDS: Counter[str] = Counter()
"""Time of the tests by folder."""
EMPTY = pytest.StashKey[list[str]]()

settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    own = parser.getgroup("groups of tests")
    own.addoption("--broker", action="store_true", help="also run the tests that talk to a real Kafka")
    own.addoption("--nightly", action="store_true", help="take all cases, and many more random histories (make nightly)")
    words = "fail if a group of tests was selected and ran none: of all groups (for full runs), or of these, with commas between"
    own.addoption("--require-groups", nargs="?", const=",".join(GROUPS), default="", metavar="NAMES", help=words)


@cache
def second_user() -> int | None:
    """A user that this process can switch to: it is root, the password database has another user, and the system allows it."""
    others = sorted({entry.pw_uid for entry in pwd.getpwall()} - {0}, reverse=True)
    if os.geteuid() != 0 or not others:
        return None
    try:
        subprocess.run(["true"], user=others[0], extra_groups=[], check=True)
    except OSError:
        return None
    return others[0]


@cache
def can_isolate() -> bool:
    """Whether processes can run with read-only disks and without network: as root, if the system allows it."""
    try:
        subprocess.run(["unshare", "--mount", "--net", "mount", "-o", "remount,bind,ro", "/"], capture_output=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@cache
def container_engine() -> str | None:
    """The program that builds and runs images: podman, or docker if its service answers."""
    for name in ("podman", "docker"):
        try:
            subprocess.run([name, "info"], capture_output=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        return name
    return None


@cache
def replaces_engine() -> bool:
    """Whether the steps of the image can run in a Debian system, and no engine can build it."""
    return os.geteuid() == 0 and shutil.which("debootstrap") is not None and container_engine() is None


@cache
def browser() -> str | None:
    """A Chromium, if npm exists too, which installs the page checkers."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found if shutil.which("npm") else None


def selected_groups(config: pytest.Config) -> list[str]:
    """The marker groups of this run.

    `corpora` if the folder exists, `broker` only on request, `two_users` as root, `isolated` if processes can be isolated; with
    --nightly `containers` if there is an engine, `browser` if there is a Chromium.
    """
    left_out = {
        "corpora": not CORPORA.is_dir(),
        "broker": not config.getoption("--broker"),
        "two_users": second_user() is None,
        "isolated": not can_isolate(),
        "containers": not config.getoption("--nightly") or container_engine() is None,
        "debian": not config.getoption("--nightly") or not replaces_engine(),
        "browser": not config.getoption("--nightly") or browser() is None,
    }
    return [group for group in GROUPS if not left_out.get(group, False)]


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as under nohup and after `&`; tests and their children need the signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[EMPTY] = []


def pytest_report_header(config: pytest.Config) -> str:
    return "groups selected: " + ", ".join(selected_groups(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set(GROUPS) - set(selected_groups(config)) | (set() if config.getoption("--nightly") else {"nightly"})
    dropped = [item for item in items if any(item.get_closest_marker(group) for group in left_out)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        left = set(map(id, dropped))
        items[:] = [item for item in items if id(item) not in left]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("spark") is None)  # the longest group starts first


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Give each worker process whole modules, so that module fixtures are made once; one worker gets all Spark tests, and one all
    tests of the brokers of `broker/conftest.py`."""
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.split("::", 1)[0]
            if starts_spark(module):
                return "spark"
            return "brokers" if shares_brokers(module) else module

    return ByModule(config, log)


@cache
def starts_spark(module: str) -> bool:
    """Whether all tests of a module (given by path) are marked `spark`."""
    return (
        re.search(r"^pytestmark = .*\bmark\.spark\b", (Path(__file__).resolve().parents[1] / module).read_text(), re.MULTILINE)
        is not None
    )


@cache
def shares_brokers(module: str) -> bool:
    """Whether a module (given by path) uses the shared brokers of its folder."""
    if not module.startswith("tests/broker/"):
        return False
    text = (Path(__file__).resolve().parents[1] / module).read_text()
    return any(re.search(rf"\b{name}: ", text) for name in OF_ALL_BROKERS)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called also for reports of worker processes."""
    MILLISECONDS[report.nodeid.split("/")[1].split("::")[0]] += round(report.duration * 1000)
    if report.when == "call" and not report.skipped:
        RAN.update(group for group in GROUPS if group in report.keywords)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    required = session.config.getoption("--require-groups").split(",")
    if finished and not session.config.option.collectonly and not hasattr(session.config, "workerinput"):
        empty = [group for group in selected_groups(session.config) if group in required and not RAN[group]]
        session.config.stash[EMPTY] = empty
        if empty:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    longest = ", ".join(f"{folder} {milliseconds / 1000:.0f}" for folder, milliseconds in MILLISECONDS.most_common(12))
    terminalreporter.write_line(f"seconds by folder: {longest}")
    if empty := config.stash[EMPTY]:
        terminalreporter.write_line(f"groups selected that ran no test: {', '.join(empty)}", red=True)


@pytest.fixture(scope="module")
def chosen_kernels() -> "Iterator[None]":
    """Keep the kernel form that a test chooses by `use_compiled`, however small the work is."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("questions.search", "export.facts.read", "questions.dump.inputs"):
            patch.setattr(f"kafka_forensics.{module}.compile_as_needed", lambda _: None)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The only Spark session of a run: two cores of this machine, up to four attempts per task."""
    from kafka_forensics.spark import default_builder, register

    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    builder = default_builder("local[2,4]").config("spark.sql.shuffle.partitions", "2")
    session = builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3() -> "Iterator[S3Server]":
    """One S3 server for all tests of a process; each test uses a different bucket."""
    from tests.support.object_stores import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture
def proxy(s3: "S3Server") -> "Iterator[S3Proxy]":
    """A proxy in front of the server that records only this test's requests, and may inject errors."""
    from tests.support.object_stores import s3_proxy

    with s3_proxy(s3) as before:
        yield before


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of archives of real brokers' log directories, for tests of the group `corpora`."""
    return CORPORA


@pytest.fixture(scope="session")
def archives() -> Path:
    """The corpora, or the shipped archives if there are none; for tests that need only shipped archives."""
    return CORPORA if CORPORA.is_dir() else SHIPPED
