"""Names of directories that a starting broker loads as partitions."""

from kafka_forensics.replication.recovery import loads_as_partition

UNIQUE = "0123456789abcdef0123456789abcdef"
LOADED = ["t-0", "t-007", "a-b-12", "..-0", "<script>-0", "=cmd-0", "\x1b[31mred-0", "--0"]
LOADED += [f"t-0.{UNIQUE}-{suffix}" for suffix in ("delete", "stray")]
REFUSED = ["lost+found", "t", "", "-0", "t-", "t-x", "t-2147483648", "t-delete", "t-0-delete", "t-0x1", "t-1_0"]


def test_only_valid_names_are_loaded() -> None:
    assert [name for name in (*LOADED, *REFUSED) if loads_as_partition(name)] == LOADED
    assert not loads_as_partition(f"a b-0.{UNIQUE}-future")
