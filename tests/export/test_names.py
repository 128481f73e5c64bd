"""Directory names: safe, short enough, decodable, and different for different names."""

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.export.datasets import directory_of

SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~%=")


def parts(topic: str, broker: str) -> list[str]:
    return directory_of(topic, 0, broker).split("/")


def test_ordinary_names_stand_as_they_are() -> None:
    assert directory_of("orders.v1_x-y", 12, "3") == "topic=orders.v1_x-y/partition=12/broker=3"


def test_a_topic_of_the_greatest_length_is_not_cut() -> None:
    assert parts("t" * 249, "1")[0] == "topic=" + "t" * 249


@pytest.mark.parametrize("name", ["../../etc", "a/b", "\x1b]0;x\x07", "=", "é" * 300, "\udcff", "", ".", "..", "%2F", "x" * 5000])
def test_hostile_names_are_one_safe_name_each(name: str) -> None:
    names = parts(name, name)
    assert len(names) == 3
    for one in names:
        assert set(one) <= SAFE
        assert len(one) <= 255


def test_a_topic_called_like_null_is_not_taken_for_null() -> None:
    (name, _, _) = parts("__HIVE_DEFAULT_PARTITION__", "1")
    assert name == "topic=%5F_HIVE_DEFAULT_PARTITION__"


def test_long_names_that_differ_only_at_the_end_stay_apart() -> None:
    assert parts("x", "b" * 400 + "1")[2] != parts("x", "b" * 400 + "2")[2]


@pytest.mark.properties
@given(st.text(st.characters(codec="utf-8"), max_size=20), st.text(st.characters(codec="utf-8"), max_size=20))
def test_names_decode_to_what_they_were(one: str, other: str) -> None:
    for name in (one, other):
        assert unquote_to_bytes(parts("t", name)[2].removeprefix("broker=")) == name.encode()
    assert (parts("t", one) == parts("t", other)) == (one == other)
