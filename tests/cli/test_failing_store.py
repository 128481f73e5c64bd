"""A failing storage service gives status 3, and advice to try again where that may help, in every command and at any moment."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_forensics.storage.remote import errors, open as opening
from tests.cli.runs import Run
from tests.support.object_stores import (
    ACCESS_DENIED,
    ACCESS_KEY,
    INTERNAL_ERROR,
    SECRET_KEY,
    SLOW_DOWN,
    Fault,
    S3Proxy,
    S3Server,
    s3_proxy,
    s3_server,
)
from tests.support.places import SAMPLES

SAMPLE = SAMPLES / "healthy" / "broker-1"
LOCAL_EXPORT = ["export", SAMPLE / "orders-0", "-q"]
DAY = "s3://failing/day"
PARTITION = f"{DAY}/orders-0"
TRY_AGAIN = "hint: try again later: the storage service was too busy, or could not be reached\n"
HANG_SECONDS = 1.0

LISTING: dict[str, Callable[[str, str], bool]] = {
    "listing": lambda method, path: method == "GET" and "list-type" in path,
    "opening": lambda method, _: method == "HEAD",
    "reading": lambda method, path: method == "GET" and path.endswith(".log"),
    "small files": lambda method, path: method == "GET" and path.endswith((".index", ".properties", "-checkpoint")),
}
WRITING: dict[str, Callable[[str, str], bool]] = {
    "listing": LISTING["listing"],
    "writing": lambda method, _: method in ("PUT", "POST"),
    "naming": lambda method, path: method == "PUT" and "/part-00000-000-" in path and "_temporary" not in path,
    "sealing": lambda method, path: method == "PUT" and path.endswith("/_SUCCESS"),
}
COMMANDS = {
    "scan": ["scan", f"{DAY}/orders-[01]", "-q"],
    "dump": ["dump", PARTITION, "--records"],
    "find": ["find", PARTITION, "--offset", "3"],
    "compare": ["compare", f"1={DAY}", "2=s3://failing/other", "--topic", "orders", "--partition", "0", "-q"],
    "plan": ["plan", DAY, "--topic", "orders", "--partition", "0", "-q"],
    "changes": ["changes", "s3://failing/days/1", "s3://failing/days/2", "-q"],
    "export": ["export", PARTITION, "--fact", "batches", "-q"],
    "transactions": ["transactions", PARTITION, "-q"],
    "epochs": ["epochs", PARTITION, "-q"],
}


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        for name in ("orders-0", "orders-1"):
            started.upload(SAMPLE / name, "failing", f"day/{name}")
        for prefix in ("other", "days/1/broker-1", "days/2/broker-1"):
            started.upload(SAMPLE / "orders-0", "failing", f"{prefix}/orders-0")
            started.client().upload_file(str(SAMPLE / "meta.properties"), "failing", f"{prefix}/meta.properties")
        yield started


@pytest.fixture(scope="module")
def proxy(server: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(server) as started:
        yield started


@pytest.fixture
def store(proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> S3Proxy:
    """The proxy before the server; retries do not wait."""
    monkeypatch.setattr(errors, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    proxy.fault = None
    return proxy


def fault_when(response: "int | tuple[int, bytes]", matches: Callable[[str, str], bool]) -> Fault:
    return lambda method, path, _: response if matches(method, path) else None


@pytest.mark.parametrize(
    ("command", "moment"), [*(("scan", moment) for moment in LISTING), *((command, "reading") for command in COMMANDS)]
)
def test_a_throttled_store_gives_status_3_and_advice_to_try_again(
    store: S3Proxy, run: Run, tmp_path: Path, command: str, moment: str
) -> None:
    for number, fault in enumerate((SLOW_DOWN, ACCESS_DENIED)):
        output = ["--output", tmp_path / f"out-{number}"] if command == "export" else []
        store.fault = fault_when(fault, LISTING[moment])
        status, _, err = run(*COMMANDS[command], *output)
        assert status == 3
        if fault == SLOW_DOWN:
            assert "still failing after 4 attempts; try again later; response of the service: " in err
            assert err.endswith(TRY_AGAIN)
        elif moment != "small files":  # see the test of small objects below
            assert "access denied: check credentials and rights" in err
            assert "try again" not in err


def test_find_does_not_read_the_small_files_of_a_small_log(store: S3Proxy, run: Run) -> None:
    """It searches a small log without its index, and does not read its leader epochs."""
    store.fault = fault_when(SLOW_DOWN, LISTING["small files"])
    status, _, err = run(*COMMANDS["find"])
    assert (status, "found 1 record" in err) == (0, True)


def test_rights_lost_between_opening_and_reading_a_small_object_are_reported(store: S3Proxy, run: Run) -> None:
    """The error document of the service is longer than the object."""
    refused: set[str] = set()

    def fault(method: str, path: str, _: int) -> tuple[int, bytes] | None:
        if LISTING["small files"](method, path):
            refused.add(path)
        return ACCESS_DENIED if path in refused else None

    store.fault = fault
    status, _, err = run("dump", PARTITION)
    assert (status, bool(refused), "try again" in err) == (3, True, False)
    assert err.count("access denied: check credentials and rights") == err.count("incomplete: ") > 0


def test_a_prefix_that_is_refused_is_one_line(store: S3Proxy, run: Run) -> None:
    store.fault = fault_when(ACCESS_DENIED, lambda _, path: "/days/1/" in path and "list-type" not in path)
    status, _, err = run("scan", "s3://failing/days")
    assert status == 3
    (line,) = [line for line in err.splitlines() if line.startswith("incomplete: ")]
    assert re.match(
        r"incomplete: \d+ objects below s3://failing/days/1/broker-1 cannot be read; the first, s3://failing/days/1/", line
    )
    assert line.count("access denied: check credentials and rights") == 1


@pytest.mark.parametrize("moment", WRITING)
def test_an_export_gives_status_3_if_throttled_and_2_if_forbidden(store: S3Proxy, run: Run, moment: str) -> None:
    for fault, expected in ((INTERNAL_ERROR if moment == "sealing" else SLOW_DOWN, 3), (ACCESS_DENIED, 2)):
        output = f"s3://failing/{moment}-{fault[0]}"
        store.fault = fault_when(fault, WRITING[moment])
        status, _, err = run(*LOCAL_EXPORT, "--fact", "batches", "--output", output)
        assert status == expected
        assert err.startswith(f"error: cannot write to {output}{':' if moment == 'listing' else '/cluster='}")
        assert err.endswith(TRY_AGAIN if status == 3 else "hint: check the bucket, credentials and rights (docs/storage.md)\n")


@pytest.mark.parametrize(
    "arguments",
    [["scan", PARTITION, "-q"], pytest.param([*LOCAL_EXPORT, "--output", "s3://failing/hung"], marks=pytest.mark.nightly)],
    ids=["scan", "export"],
)
def test_a_store_that_does_not_answer_gives_status_3(
    store: S3Proxy, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[object]
) -> None:
    monkeypatch.setattr(opening, "REQUEST_SECONDS", HANG_SECONDS / 4)

    def hang(*_: object) -> None:
        time.sleep(HANG_SECONDS)

    store.fault = hang
    status, _, err = run(*arguments)
    assert (status, err.endswith(TRY_AGAIN)) == (3, True)


def test_an_unreachable_store_gives_status_3(store: S3Proxy, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.fault is None
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    other_schemes = [f"{scheme}://127.0.0.1:{port}/x" for scheme in ("ftp", "webhdfs")]
    scans: list[list[object]] = [["scan", uri, "-q"] for uri in [PARTITION, *other_schemes]]
    exports = [[*LOCAL_EXPORT, "--output", uri] for uri in ("s3://failing/nobody", other_schemes[0])]
    for arguments in [*scans, *exports]:
        status, _, err = run(*arguments)
        assert (status, err.endswith(TRY_AGAIN)) == (3, True), arguments


def test_a_missing_bucket_or_path_gives_status_2(store: S3Proxy, run: Run, tmp_path: Path) -> None:
    for arguments in (
        ["scan", "s3://nobody-has-it/day", "-q"],
        ["scan", "s3://nobody-has-it/*", "-q"],
        ["dump", "s3://nobody-has-it/day/00000000000000000000.log"],
        ["export", "s3://nobody-has-it/day", "--output", tmp_path / "out"],
        ["scan", f"{DAY}/orders-9", "-q"],
        [*LOCAL_EXPORT, "--output", "s3://nobody-has-it/out"],
    ):
        status, _, err = run(*arguments)
        assert (status, "try again" in err) == (2, False), arguments
    assert store.requests
