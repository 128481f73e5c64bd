"""Names of directories as a starting broker takes them."""

import pytest

from kafka_forensics.replication.recovery import loads_as_partition

UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "name",
    [
        "t-0",
        "a-b-12",
        "..-0",
        "<script>-0",
        "=cmd-0",
        "\x1b[31mred-0",
        "--0",
        f"t-0.{UNIQUE}-delete",
        f"t-0.{UNIQUE}-stray",
        "t-007",
    ],
)
def test_loaded(name: str) -> None:
    assert loads_as_partition(name)


@pytest.mark.parametrize(
    "name",
    [
        "lost+found",
        "t",
        "",
        "-0",
        "t-",
        "t-x",
        "t-2147483648",
        "t-delete",
        "t-0-delete",
        f"a b-0.{UNIQUE}-future",
        "t-0x1",
        "t-1_0",
    ],
)
def test_refused(name: str) -> None:
    assert not loads_as_partition(name)
