"""A storage service that fails: status 3 and "try again" where that may help, whatever the command, and whenever it happens."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.storage.remote import errors
from kafka_forensics.storage.remote import open as opening
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

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "healthy" / "broker-1"
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
    "naming": lambda method, path: method == "PUT" and "part-00000.parquet" in path and "_temporary" not in path,
    "sealing": lambda method, path: method == "PUT" and path.endswith("/_SUCCESS"),
}
COMMANDS = {
    "scan": ["scan", PARTITION, "-q"],
    "scan of a pattern": ["scan", f"{DAY}/orders-[01]", "-q"],
    "dump": ["dump", PARTITION],
    "dump of records": ["dump", PARTITION, "--records"],
    "find": ["find", PARTITION, "--offset", "3"],
    "compare": ["compare", f"1={DAY}", "2=s3://failing/other", "--topic", "orders", "--partition", "0", "-q"],
    "plan": ["plan", DAY, "--topic", "orders", "--partition", "0", "-q"],
    "transactions": ["transactions", DAY, "--topic", "orders", "--partition", "0", "-q"],
    "epochs": ["epochs", DAY, "--topic", "orders", "--partition", "0", "-q"],
    "changes": ["changes", "s3://failing/days/1", "s3://failing/days/2", "-q"],
    "changes of a folder": ["changes", "s3://failing/days", "-q"],
    "export": ["export", PARTITION, "--fact", "batches", "-q"],
}
OF_NO_USE = ("find", "small files")
"""A small log is searched without its index, and nobody asks for its leader epochs."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as made:
        for name in ("orders-0", "orders-1"):
            made.upload(SAMPLE / name, "failing", f"day/{name}")
        for place in ("other", "days/1/broker-1", "days/2/broker-1"):
            made.upload(SAMPLE / "orders-0", "failing", f"{place}/orders-0")
            made.client().upload_file(str(SAMPLE / "meta.properties"), "failing", f"{place}/meta.properties")
        yield made


@pytest.fixture(scope="module")
def before(server: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(server) as made:
        yield made


@pytest.fixture
def store(before: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> S3Proxy:
    """The proxy before the server, and attempts that are not waited for."""
    monkeypatch.setattr(errors, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", before.endpoint)
    before.fault = None
    return before


def failing(with_what: "int | tuple[int, bytes]", when: Callable[[str, str], bool]) -> Fault:
    return lambda method, path, _: with_what if when(method, path) else None


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "moment"), [(command, moment) for command in COMMANDS for moment in LISTING if (command, moment) != OF_NO_USE]
)
def test_a_throttled_store_is_3_and_try_again(
    store: S3Proxy, tmp_path: Path, command: str, moment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--output", str(tmp_path / "out")] if command == "export" else []
    store.fault = failing(SLOW_DOWN, LISTING[moment])
    assert outcome([*COMMANDS[command], *output]) == 3
    told = said(capsys)
    assert "still failing after 4 attempts; try again later; the service said: " in told
    assert told.endswith(TRY_AGAIN)
    if moment == "small files":  # below
        return
    store.fault = failing(ACCESS_DENIED, LISTING[moment])
    again = [f"{part}-2" if part == str(tmp_path / "out") else part for part in output]
    assert outcome([*COMMANDS[command], *again]) == 3
    told = said(capsys)
    assert "access denied: check credentials and rights" in told
    assert "try again" not in told


def test_what_is_not_read_cannot_fail(store: S3Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    command, moment = OF_NO_USE
    store.fault = failing(SLOW_DOWN, LISTING[moment])
    assert outcome(COMMANDS[command]) == 0
    assert "found 1 record" in said(capsys)


def test_a_refusal_that_does_not_fit_where_a_small_object_shall_be(store: S3Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    """Rights that end between the opening of an object and its reading: all that is said of them is more than the object has."""
    refused: set[str] = set()

    def fault(method: str, path: str, _: int) -> tuple[int, bytes] | None:
        if LISTING["small files"](method, path):
            refused.add(path)
        return ACCESS_DENIED if path in refused else None

    store.fault = fault
    assert outcome(COMMANDS["dump"]) == 3
    told = said(capsys)
    assert refused
    assert told.count("access denied: check credentials and rights") == told.count("incomplete: ") > 0
    assert "try again" not in told


@pytest.mark.parametrize("moment", WRITING)
def test_an_export_to_a_throttled_store_is_3_and_one_that_is_forbidden_2(
    store: S3Proxy, moment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(SAMPLE / "orders-0"), "--fact", "batches", "-q"]
    for fault, status in ((SLOW_DOWN, 3), (INTERNAL_ERROR, 3), (ACCESS_DENIED, 2)):
        output = f"s3://failing/{moment}-{fault[0]}"
        store.fault = failing(fault, WRITING[moment])
        assert outcome([*arguments, "--output", output]) == status
        told = said(capsys)
        assert told.startswith(f"error: cannot write to {output}: ")
        assert told.endswith(TRY_AGAIN if status == 3 else "hint: check the bucket, credentials and rights (docs/storage.md)\n")


def test_a_store_that_does_not_answer(store: S3Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(opening, "REQUEST_SECONDS", HANG_SECONDS / 4)

    def hang(*_: object) -> None:
        time.sleep(HANG_SECONDS)

    store.fault = hang
    for arguments in (["scan", PARTITION, "-q"], ["export", str(SAMPLE / "orders-0"), "--output", "s3://failing/hung", "-q"]):
        assert outcome(arguments) == 3
        assert said(capsys).endswith(TRY_AGAIN)


def test_a_store_that_is_not_there(store: S3Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert store.fault is None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    elsewhere = [f"{scheme}://127.0.0.1:{port}/x" for scheme in ("ftp", "webhdfs")]
    for uri in (PARTITION, *elsewhere):
        assert outcome(["scan", uri, "-q"]) == 3
        assert said(capsys).endswith(TRY_AGAIN)
    for output in ("s3://failing/nobody", elsewhere[0]):
        assert outcome(["export", str(SAMPLE / "orders-0"), "--output", output, "-q"]) == 3
        assert said(capsys).endswith(TRY_AGAIN)


def test_what_is_not_there_is_a_wrong_path(store: S3Proxy, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = ["--output", str(tmp_path / "out")]
    for arguments in (
        ["scan", "s3://nobody-has-it/day"],
        ["scan", "s3://nobody-has-it/*"],
        ["dump", "s3://nobody-has-it/day/00000000000000000000.log"],
        ["export", "s3://nobody-has-it/day", *output],
        ["scan", f"{DAY}/orders-9"],
        ["export", str(SAMPLE / "orders-0"), "--output", "s3://nobody-has-it/out"],
    ):
        assert outcome([*arguments, "-q"] if arguments[0] != "dump" else arguments) == 2
        assert "try again" not in said(capsys)
    assert store.requests
