"""The private map of pseudonyms: its key gives the same name the same pseudonym, and it loses no entry."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.model.pseudonyms import NameKind
from kafka_forensics.questions.collect import PseudonymMap

KEY = "00" * 32


def test_a_map_is_made_private_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    made = PseudonymMap.at(path)
    assert path.stat().st_mode & 0o777 == 0o600
    pseudonym = made.pseudonym(NameKind.TOPIC, "orders")
    made.keep()
    again = PseudonymMap.at(path)
    assert again.pseudonym(NameKind.TOPIC, pseudonym) == pseudonym
    assert again.pseudonym(NameKind.TOPIC, "orders") == pseudonym
    assert again.pseudonym(NameKind.GROUP, "orders") != pseudonym
    assert json.loads(path.read_text())["names"] == {pseudonym: {"kind": "topic", "name": "orders"}}
    assert [path.name for path in tmp_path.iterdir()] == ["names.json"]
    assert PseudonymMap.at(tmp_path / "other.json").pseudonym(NameKind.TOPIC, "orders") != pseudonym


def test_names_that_another_process_wrote_meanwhile_stay(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    first = PseudonymMap.at(path)
    second = PseudonymMap.at(path)
    first.pseudonym(NameKind.TOPIC, "orders")
    second.pseudonym(NameKind.TOPIC, "payments")
    first.keep()
    second.keep()
    assert {row["name"] for row in json.loads(path.read_text())["names"].values()} == {"orders", "payments"}
    path.unlink()
    other = PseudonymMap.at(path)
    other.pseudonym(NameKind.TOPIC, "orders")
    other.keep()
    with pytest.raises(UsageError, match="another key"):
        first.keep()


def test_a_map_that_cannot_be_renamed_is_an_error(tmp_path: Path) -> None:
    """A process of the same id left its unfinished file."""
    path = tmp_path / "names.json"
    left = tmp_path / f".names.json.{os.getpid()}.part"
    left.touch()
    with pytest.raises(UsageError, match="cannot write to"):
        PseudonymMap.at(path)
    made = PseudonymMap.at(path)
    made.pseudonym(NameKind.TOPIC, "orders")
    left.touch()
    with pytest.raises(UsageError, match="cannot write to"):
        made.keep()


def _add_names(path: Path, mine: int) -> None:
    for number in range(20):
        names = PseudonymMap.at(path)
        names.pseudonym(NameKind.TOPIC, f"orders-{mine}-{number}")
        names.keep()


def test_processes_that_write_one_map_at_once_lose_no_name(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    processes = [multiprocessing.get_context("spawn").Process(target=_add_names, args=(path, mine)) for mine in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 2
    names = json.loads(path.read_text())["names"].values()
    assert {row["name"] for row in names} == {f"orders-{mine}-{number}" for mine in range(2) for number in range(20)}
    assert [found.name for found in tmp_path.iterdir()] == ["names.json"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"version": 2, "key": "00", "names": {}}', '{"version": 1, "key": "zz", "names": {}}', "\x00"]
)
def test_other_files_are_refused_and_unchanged(text: str, tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="not a map of pseudonyms"):
        PseudonymMap.at(path)
    assert path.read_text() == text


def test_a_map_that_others_can_read_is_refused(tmp_path: Path) -> None:
    PseudonymMap.at(tmp_path / "names.json")
    (tmp_path / "names.json").chmod(0o640)
    with pytest.raises(UsageError, match="others may read") as error:
        PseudonymMap.at(tmp_path / "names.json")
    assert error.value.hint == f"chmod 600 {tmp_path / 'names.json'}"


def test_two_names_never_share_a_pseudonym() -> None:
    first = PseudonymMap(KEY, {}).pseudonym(NameKind.TOPIC, "orders")
    longer = PseudonymMap(KEY, {first: ("topic", "another")}).pseudonym(NameKind.TOPIC, "orders")
    assert longer.startswith(first)
    assert len(longer) > len(first)


def test_names_without_an_entry_have_the_same_pseudonyms() -> None:
    names = PseudonymMap(KEY, {})
    pseudonym = names.one_time_pseudonym(NameKind.CLIENT, "app-1")
    assert PseudonymMap(KEY, {}).pseudonym(NameKind.CLIENT, "app-1") == pseudonym
    assert names.pseudonym(NameKind.TOPIC, pseudonym) != pseudonym
    assert names.pseudonym(NameKind.CLIENT, "app-1") == pseudonym
    assert {names.pseudonym(kind, "x").rpartition("-")[0] for kind in NameKind} == {kind.value for kind in NameKind}


@pytest.mark.parametrize("name", ["", "__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_internal_topics_keep_their_names(name: str) -> None:
    names = PseudonymMap(KEY, {})
    assert names.pseudonym(NameKind.TOPIC, name) == names.one_time_pseudonym(NameKind.TOPIC, name) == name
