"""Pseudonyms: the private file that holds them, and what becomes of names wherever they stand in an answer."""

import io
import json
import multiprocessing
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.analysis.catalogue import CATALOGUE, finding
from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.options import SCAN_FORMATS
from kafka_forensics.cli.outputs.scan import write_result
from kafka_forensics.cli.streams import Destination
from kafka_forensics.errors import UsageError
from kafka_forensics.export.redaction import PseudonymMap, Redaction
from kafka_forensics.model.coordinators import GroupMember
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.pseudonyms import NameKind
from kafka_forensics.model.results import BrokerSummary, Incomplete
from kafka_forensics.wording import advice, message
from tests.support.results import hostile_result, result_of, unclean_result
from tests.support.rich_evidence import RICH


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [*map(str, value or ())]


KEY = "00" * 32
NAMED = [value for key in ("topics", "group", "groups", "transactional_id", "cluster_ids") for value in listed(RICH.get(key))] + [
    "orders"
]
SAMPLE = str(Path(__file__).resolve().parents[2] / "sample_logs" / "silent-divergence")


def redaction() -> Redaction:
    return Redaction(PseudonymMap(KEY, {}))


def told(value: Any) -> Any:
    return redaction().answer(value)


# The private file.


def test_a_map_is_made_private_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    made = PseudonymMap.at(path)
    assert path.stat().st_mode & 0o777 == 0o600
    pseudonym = made.of("topic", "orders")
    made.keep()
    again = PseudonymMap.at(path)
    assert again.is_pseudonym(pseudonym)
    assert again.of("topic", "orders") == pseudonym
    assert again.of("group", "orders") != pseudonym
    assert json.loads(path.read_text())["names"] == {pseudonym: {"kind": "topic", "name": "orders"}}
    assert [each.name for each in tmp_path.iterdir()] == ["names.json"]
    other = PseudonymMap.at(tmp_path / "other.json")
    assert other.of("topic", "orders") != pseudonym


def test_what_another_process_kept_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    first = PseudonymMap.at(path)
    second = PseudonymMap.at(path)
    first.of("topic", "orders")
    second.of("topic", "payments")
    first.keep()
    second.keep()
    assert {row["name"] for row in json.loads(path.read_text())["names"].values()} == {"orders", "payments"}
    path.unlink()
    other = PseudonymMap.at(path)
    other.of("topic", "orders")
    other.keep()
    with pytest.raises(UsageError, match="another key"):
        first.keep()


def test_a_map_that_cannot_be_put_in_place_is_an_error(tmp_path: Path) -> None:
    """A process of the same id left its half-written file behind."""
    path = tmp_path / "names.json"
    left = tmp_path / f".names.json.{os.getpid()}.part"
    left.touch()
    with pytest.raises(UsageError, match="cannot write to"):
        PseudonymMap.at(path)
    made = PseudonymMap.at(path)
    made.of("topic", "orders")
    left.touch()
    with pytest.raises(UsageError, match="cannot write to"):
        made.keep()


def _add_names(path: Path, mine: int) -> None:
    for number in range(20):
        names = PseudonymMap.at(path)
        names.of("topic", f"orders-{mine}-{number}")
        names.keep()


def test_processes_that_write_one_map_at_once_lose_no_name(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    processes = [multiprocessing.get_context("spawn").Process(target=_add_names, args=(path, mine)) for mine in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    names = json.loads(path.read_text())["names"].values()
    assert {row["name"] for row in names} == {f"orders-{mine}-{number}" for mine in range(4) for number in range(20)}
    assert [found.name for found in tmp_path.iterdir()] == ["names.json"]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"version": 2, "key": "00", "names": {}}', '{"version": 1, "key": "zz", "names": {}}', "\x00"],
)
def test_what_is_no_map_is_refused_and_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="no map of pseudonyms"):
        PseudonymMap.at(path)
    assert path.read_text() == text


def test_a_map_that_others_can_read_is_refused(tmp_path: Path) -> None:
    PseudonymMap.at(tmp_path / "names.json")
    (tmp_path / "names.json").chmod(0o640)
    with pytest.raises(UsageError, match="others may read") as error:
        PseudonymMap.at(tmp_path / "names.json")
    assert error.value.hint == f"chmod 600 {tmp_path / 'names.json'}"


def test_two_names_never_share_a_pseudonym() -> None:
    known = PseudonymMap(KEY, {})
    first = known.of("topic", "orders")
    taken = PseudonymMap(KEY, {first: ("topic", "another")})
    longer = taken.of("topic", "orders")
    assert longer.startswith(first)
    assert len(longer) > len(first)


# Names in an answer.


def test_names_go_and_all_else_stays() -> None:
    before = unclean_result()
    after = told(before)
    assert before == unclean_result()
    topics = {partition.topic for partition in after.partitions}
    assert all(re.fullmatch(r"topic-[0-9a-f]{12}", topic) for topic in topics)
    assert len(topics) == 4
    assert [partition.verdict for partition in after.partitions] == [partition.verdict for partition in before.partitions]
    assert after.totals == before.totals
    assert all(re.fullmatch(r"cluster-[0-9a-f]{12}", broker.cluster_id) for broker in after.brokers)
    worst = next(each for each in after.findings if each.kind == "UNCLEAN_LOSS")
    assert worst.place.file == f"{worst.place.topic}-0/00000000000000000000.log"
    assert worst.evidence["premises"] == ["not compacted", "one topic id"]
    assert message(worst).startswith(f"{worst.place.topic}-0")


@pytest.mark.parametrize("format_name", SCAN_FORMATS)
def test_hostile_names_go_in_every_format(format_name: str) -> None:
    stream = io.StringIO()
    write_result(told(hostile_result()), format_name, Destination(stream, 80, colour=False), verbose=True)
    text = stream.getvalue()
    assert "topic-" in text
    assert "pwned" not in text
    assert "script>" not in text


@pytest.mark.parametrize("kind", CATALOGUE)
def test_words_say_the_same_of_pseudonyms(kind: str) -> None:
    known = PseudonymMap(KEY, {})
    before = finding(kind, Place("orders", 3, 2, "/copies/broker-2", "orders-3/0.log", 5, 9, 1, 4), RICH)
    after = Redaction(known).answer(before)
    back = {known.of(kind, name): name for kind in NameKind for name in NAMED if known.is_pseudonym(known.of(kind, name))}
    for words in (message, advice):
        text = str(words(after))
        assert "orders" not in text
        for pseudonym, name in back.items():
            text = text.replace(pseudonym, name)
        assert text == str(words(before))


def test_names_are_found_within_other_texts() -> None:
    names = ["orders", "orders-eu", "a.b_c", "-odd-", "with space", "größe", "half\ud800", "x/y"]
    found = [finding("BATCH_CRC_MISMATCH", Place(name, 0, 1)) for name in names]
    own = redaction()
    pseudonyms = {name: each.place.topic for name, each in zip(names, own.answer(found), strict=True)}
    for name in names:
        assert own.text(f"offsets of {name}-12 by {name}.") == f"offsets of {pseudonyms[name]}-12 by {pseudonyms[name]}."
        assert own.text(f"/copies/{name}-0/00.log") == f"/copies/{pseudonyms[name]}-0/00.log"
    assert own.text("orders-eu-0 and orders-0") == f"{pseudonyms['orders-eu']}-0 and {pseudonyms['orders']}-0"
    assert own.text("reorders the disorders") == "reorders the disorders"
    assert own.text(own.text("orders-eu-0")) == own.text("orders-eu-0")


def test_words_of_ours_stay_though_a_topic_is_called_so() -> None:
    named = finding(
        "TXN_OPEN",
        Place("open", 0, 1, "d", "open-0/0.log"),
        {"reason": "open", "coordinator_state": "open", "open": 3, "group": "reason", "last_offset": 1},
    )
    after = told(result_of(named)).findings[0]
    assert after.kind == "TXN_OPEN"
    assert [*after.evidence] == [*named.evidence]
    assert after.evidence["reason"] == after.evidence["coordinator_state"] == "open"
    assert after.evidence["group"].startswith("group-")
    assert after.place.file == f"{after.place.topic}-0/0.log"


def test_names_that_say_nothing_are_told_only_where_they_stand_as_names() -> None:
    own = redaction()
    groups = ["-", "/", " ", "7", "a b"]
    rows: list[dict[str, str]] = own.answer([{"group": group} for group in groups])
    assert all(row["group"].startswith("group-") for row in rows)
    assert own.text("/data bytes/x-7 of a b") == f"/data bytes/x-7 of {rows[-1]['group']}"


def test_the_leader_is_a_broker_or_a_member() -> None:
    own = redaction()
    named: Any = own.answer({"brokers": ["rack7-west"], "truncation_offsets": [{"follower": 1, "leader": "rack7-west"}]})
    assert named["truncation_offsets"][0]["leader"] == named["brokers"][0]
    assert own.answer({"leader": "app-1-uuid"})["leader"].startswith("client-")


def test_topics_that_are_numbers_are_told_from_numbers() -> None:
    own = redaction()
    topic = own.answer(Place("1", 0, 1)).topic
    assert topic is not None
    assert topic.startswith("topic-")
    assert own.text("broker 1 has 1-0 and 11-0") == f"broker 1 has {topic}-0 and 11-0"
    short = own.answer(Place("a", 0, 1)).topic
    assert own.text("a batch of a-0") == f"a batch of {short}-0"


def test_hosts_in_paths_and_brokers_named_by_folders_go() -> None:
    broker = BrokerSummary(
        "rack7-west", None, ["/copies/kafka7.prod.example.com/data", "s3://bucket/b/10.1.2.3/x"], clean_shutdown=True
    )
    after = told(broker)
    assert after.broker.startswith("broker-")
    assert re.fullmatch(r"/copies/host-[0-9a-f]{12}/data", after.log_dirs[0])
    assert re.fullmatch(r"s3://host-[0-9a-f]{12}/b/host-[0-9a-f]{12}/x", after.log_dirs[1])
    plain = BrokerSummary(
        "broker-3", None, ["/copies/kafka-4.3.0.tar.gz", "file:///x/00000000000000000000.log.deleted"], clean_shutdown=True
    )
    assert told(plain) == plain


def test_kafka_s_own_topics_keep_their_names() -> None:
    place = Place("__consumer_offsets", 3, 1, "d", "__consumer_offsets-3/0.log")
    assert told(place) == place


def test_clients_of_a_group_go() -> None:
    member = GroupMember("app-1-uuid", "instance", "app-1", "/10.0.0.7", 1, 2, 3, 4)
    after = told(member)
    kinds = [name.rpartition("-")[0] for name in (after.member_id, after.group_instance_id, after.client_id, after.client_host)]
    assert kinds == ["client", "client", "client", "host"]
    assert after.session_timeout_ms == 2


def test_records_of_internal_topics_name_nobody() -> None:
    own = redaction()
    details = [
        {"record": "TOPIC_RECORD", "api_key": 2, "value": {"name": "ab", "topic_id": "c_TLqC5DSGCVYbR_hKm2PQ"}},
        {"record": "CONFIG_RECORD", "value": {"resource_type": 2, "resource_name": "ab", "name": "retention.ms"}},
        {"record": "CONFIG_RECORD", "value": {"resource_type": 4, "resource_name": "1", "name": "log.dirs"}},
        {"record": "REGISTER_BROKER_RECORD", "value": {"end_points": [{"name": "SASL", "host": "b1.example.com"}], "rack": "west"}},
        {"record": "USER_SCRAM_CREDENTIAL_RECORD", "value": {"name": "alice", "mechanism": 1}},
        {"record": "ACCESS_CONTROL_ENTRY_RECORD", "value": {"principal": "User:alice", "host": "*", "resource_name": "ab"}},
        {
            "record": "GroupMetadata",
            "key": {"record_type": 2, "group": "g"},
            "value": {"leader": "m-1", "members": [{"member_id": "m-1"}]},
        },
        {"record": "StreamsGroupTopology", "value": {"subtopologies": [{"repartition_source_topics": [{"name": "repart"}]}]}},
    ]
    rows = [detail["value"] for _, detail in own.listed(("offset", "detail"), [(1, detail) for detail in details])]
    topic = rows[0]["name"]
    assert topic.startswith("topic-")
    assert rows[0]["topic_id"] == "c_TLqC5DSGCVYbR_hKm2PQ"
    assert (rows[1]["resource_name"], rows[1]["name"]) == (topic, "retention.ms")
    assert rows[2]["resource_name"] == "1"
    assert rows[3]["end_points"][0]["name"] == "SASL"
    assert rows[3]["end_points"][0]["host"].startswith("host-")
    assert rows[3]["rack"].startswith("name-")
    assert rows[4]["name"].startswith("name-")
    assert rows[5]["principal"].startswith("name-")
    assert rows[5]["resource_name"] == topic
    assert rows[6]["leader"] == rows[6]["members"][0]["member_id"]
    assert rows[7]["subtopologies"][0]["repartition_source_topics"][0]["name"].startswith("topic-")


def test_what_could_not_be_read_is_told_by_pseudonyms() -> None:
    own = redaction()
    gap = own.answer(Incomplete("/copies/orders-0/0.log", "orders-0 is not there", "orders", 0, 1))
    assert gap.path == f"/copies/{gap.topic}-0/0.log"
    assert gap.reason == f"{gap.topic}-0 is not there"


def test_columns_of_facts_are_told_by_pseudonyms() -> None:
    own = redaction()
    columns: dict[str, Any] = {
        "topic": ["orders", "orders", None],
        "file": ["orders-0/0.log"] * 3,
        "directory": pa.array(["orders-0"] * 3).dictionary_encode(),
        "partitions": [["orders-0"], None, []],
        "evidence": ['{"group": "billing"}', "{}", "{broken orders"],
        "offset": [1, 2, 3],
    }
    before = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})
    after = own.table(before)
    topic = after.column("topic")[0].as_py()
    assert after.schema == before.schema
    assert after.column("topic").to_pylist() == [topic, topic, None]
    assert after.column("file").to_pylist() == [f"{topic}-0/0.log"] * 3
    assert after.column("partitions").to_pylist() == [[f"{topic}-0"], None, []]
    assert json.loads(after.column("evidence")[0].as_py())["group"].startswith("group-")
    assert after.column("evidence")[2].as_py() == f"{{broken {topic}"
    assert after.column("offset").to_pylist() == [1, 2, 3]


_TOPICS = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="._-"), min_size=3, max_size=20)


@pytest.mark.properties
@given(st.lists(st.tuples(_TOPICS, st.text(min_size=3, max_size=12)), min_size=1, max_size=6))
def test_no_name_is_left_in_any_text(named: list[tuple[str, str]]) -> None:
    own = redaction()
    rows = [
        finding(
            "TXN_OPEN",
            Place(topic, 0, 1, f"/copies/{topic}-0"),
            {"transactional_id": name, "command": f"abort --id {name} {topic}-0"},
        )
        for topic, name in named
    ]
    after: list[Finding] = own.answer(rows)
    pseudonyms = {each.place.topic: topic for each, (topic, _) in zip(after, named, strict=True)}
    ids = {each.evidence["transactional_id"]: name for each, (_, name) in zip(after, named, strict=True)}
    for each, (topic, name) in zip(after, named, strict=True):
        assert pseudonyms[each.place.topic] == topic
        assert ids[each.evidence["transactional_id"]] == name
        if not topic.isdecimal():  # which is told from numbers only before a partition
            assert topic not in re.split(r"[ /]|-0$", each.place.log_dir or "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scan", SAMPLE, "--redact"], "error: --redact needs --redact-map FILE\nhint: add --redact-map names.json"),
        (["scan", SAMPLE, "--redact-map", "x"], "error: --redact-map goes with --redact\nhint: add --redact\n"),
        (["scan", SAMPLE, "--redact", "--redact-map", "x", "--show-payloads"], "error: --redact and --show-payloads contradict"),
        (["scan", SAMPLE, "--redact", "--redact-map", f"{SAMPLE}/broker-1/x"], "error: "),
        (["dump", SAMPLE, "--redact", "--redact-map", "{map}", "--explain"], "error: --explain shows bytes as they are"),
        (
            ["dump", SAMPLE, "--redact", "--redact-map", "{map}", "--format", "kafka-dump-log"],
            "error: --format kafka-dump-log shows",
        ),
        (
            ["export", SAMPLE, "--output", "{map}.d", "--redact", "--redact-map", "{map}", "--engine", "spark"],
            "error: --redact does not",
        ),
    ],
)
def test_what_does_not_go_together(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled = [argument.replace("{map}", str(tmp_path / "names.json")) for argument in arguments]
    assert outcome(filled) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(said)
    assert not (Path(SAMPLE) / "broker-1" / "x").exists()


def test_every_kind_of_name_begins_with_what_it_is() -> None:
    known = PseudonymMap(KEY, {})
    assert {known.of(kind.value, "x").rpartition("-")[0] for kind in NameKind} == {kind.value for kind in NameKind}
