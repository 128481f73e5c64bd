import pytest
from hypothesis import given, strategies as st

from kafka_forensics.parsers.log_dir import FileKind, FileName, PartitionName, classify_file, parse_file_name, parse_partition_name

OFFSET = "00000000000000000370"
HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{OFFSET}.log", FileName(FileKind.LOG, 370)),
        (f"{OFFSET}.index", FileName(FileKind.INDEX, 370)),
        (f"{OFFSET}.timeindex", FileName(FileKind.TIME_INDEX, 370)),
        (f"{OFFSET}.txnindex", FileName(FileKind.TRANSACTION_INDEX, 370)),
        (f"{OFFSET}.snapshot", FileName(FileKind.PRODUCER_SNAPSHOT, 370)),
        ("09223372036854775807.log", FileName(FileKind.LOG, 2**63 - 1)),
        (f"{OFFSET}.log.deleted", FileName(FileKind.LOG, 370, suffix="deleted")),
        (f"{OFFSET}.timeindex.cleaned", FileName(FileKind.TIME_INDEX, 370, suffix="cleaned")),
        (f"{OFFSET}.index.swap.deleted", FileName(FileKind.INDEX, 370, suffix="deleted")),
        (f"{OFFSET}-0000000007.checkpoint", FileName(FileKind.METADATA_CHECKPOINT, 370, 7)),
        (f"{OFFSET}-0000000007.checkpoint.deleted", FileName(FileKind.METADATA_CHECKPOINT, 370, 7, "deleted")),
        (f"{OFFSET}-0000000007-8261351.checkpoint.part", FileName(FileKind.METADATA_CHECKPOINT, 370, 7, "part")),
        ("bootstrap.checkpoint", FileName(FileKind.METADATA_CHECKPOINT)),
        ("leader-epoch-checkpoint", FileName(FileKind.LEADER_EPOCH_CHECKPOINT)),
        ("leader-epoch-checkpoint.tmp", FileName(FileKind.LEADER_EPOCH_CHECKPOINT, suffix="tmp")),
        ("replication-offset-checkpoint", FileName(FileKind.REPLICATION_OFFSET_CHECKPOINT)),
        ("recovery-point-offset-checkpoint", FileName(FileKind.RECOVERY_POINT_OFFSET_CHECKPOINT)),
        ("log-start-offset-checkpoint", FileName(FileKind.LOG_START_OFFSET_CHECKPOINT)),
        ("cleaner-offset-checkpoint", FileName(FileKind.CLEANER_OFFSET_CHECKPOINT)),
        ("meta.properties", FileName(FileKind.META_PROPERTIES)),
        ("partition.metadata", FileName(FileKind.PARTITION_METADATA)),
        ("quorum-state", FileName(FileKind.QUORUM_STATE)),
        (".kafka_cleanshutdown", FileName(FileKind.CLEAN_SHUTDOWN)),
    ],
)
def test_names_of_kafkas_files_are_parsed(name: str, expected: FileName) -> None:
    assert parse_file_name(name) == expected
    assert classify_file(name) is expected.kind


NOT_KAFKAS = """370.log 09223372036854775808.log 99999999999999999999.index server.log .deleted .lock clean_shutdown log
  metadata_checkpoint 0@.log @.logs @.log.gz @-7.checkpoint @-2147483648.checkpoint @-0000000007-8261351.checkpoint"""


@pytest.mark.parametrize(
    "name", ["", f"{OFFSET}.log\n", "\u0660" * 20 + ".log", "deleted" + ".deleted" * 50, *NOT_KAFKAS.replace("@", OFFSET).split()]
)
def test_other_names_are_refused(name: str) -> None:
    assert parse_file_name(name) is None
    assert classify_file(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", PartitionName("orders", 0)),
        ("a-1-2", PartitionName("a-1", 2)),
        ("t--1", PartitionName("t-", 1)),
        ("--1", PartitionName("-", 1)),
        ("...-0", PartitionName("...", 0)),
        ("__cluster_metadata-0", PartitionName("__cluster_metadata", 0)),
        ("t-2147483647", PartitionName("t", 2**31 - 1)),
        ("x" * 249 + "-0", PartitionName("x" * 249, 0)),
        (f"t-0.{HEX}-delete", PartitionName("t", 0, "delete")),
        (f"t.u-10.{HEX}-future", PartitionName("t.u", 10, "future")),
        (f"t-0.{HEX}-stray", PartitionName("t", 0, "stray")),
        (f"t-0.{HEX}-5", PartitionName(f"t-0.{HEX}", 5)),
    ],
)
def test_names_of_partition_directories_are_parsed(name: str, expected: PartitionName) -> None:
    assert parse_partition_name(name) == expected


NOT_PARTITIONS = """-0 t- t .-0 ..-0 ..-0.@-delete t-00 t-+1 t-2147483648 t-99999999999999999999 <script>-0 =cmd-0 t-0.@-gone"""
UNUSUAL_NAMES = (
    "",
    "x" * 250 + "-0",
    "t\x1b-0",
    "t\n-0",
    "t-0\n",
    "t\u202e-0",
    "t-\u0663",
    "\udcff-0",
    f"t-0.{HEX.upper()}-delete",
    f"t-0.{HEX[1:]}-delete",
)


@pytest.mark.parametrize("name", [*UNUSUAL_NAMES, *NOT_PARTITIONS.replace("@", HEX).split()])
def test_other_directory_names_are_refused(name: str) -> None:
    assert parse_partition_name(name) is None


@given(st.text(max_size=60))
def test_any_name_is_parsed_or_refused(name: str) -> None:
    parsed = parse_partition_name(name)
    if parsed is not None and parsed.suffix is None:
        assert f"{parsed.topic}-{parsed.partition}" == name
    assert classify_file(name) is None or parse_file_name(name) is not None
