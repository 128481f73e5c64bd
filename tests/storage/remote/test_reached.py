"""What a URI says of how to reach it is taken out of it, and holds below it alone."""

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.remote.options import storage_options
from kafka_forensics.storage.remote.uris import apart, holding_at

ONE = "s3://KEY:SECRET@bucket/day?endpoint=http://127.0.0.1:9000"


def test_paths_lose_what_they_said_and_options_have_it() -> None:
    paths, options = apart([ONE, f"1={ONE}", f"day=1={ONE}", "/copies/b1", "file:///copies/b=2"], [("region", "here")])
    bare = "s3://bucket/day"
    assert paths == [bare, f"1={bare}", f"day=1={bare}", "/copies/b1", "file:///copies/b=2"]
    assert options[0] == ("region", "here")
    assert [name for name, _ in options[1:]] == ["at_0"]
    assert apart(paths, options) == (paths, options)


@pytest.mark.parametrize(
    ("uri", "endpoint", "key"),
    [
        ("s3://bucket/day", "127.0.0.1:9000", "KEY"),
        ("s3://bucket/day/broker-1/t-0", "127.0.0.1:9000", "KEY"),
        ("s3://bucket/day/inner/broker-1", "127.0.0.1:1", "KEY"),
        ("s3://bucket/days", "elsewhere", None),
        ("s3://other/day", "elsewhere", None),
    ],
)
def test_options_hold_below_their_uri_and_the_nearest_counts(uri: str, endpoint: str, key: str | None) -> None:
    _, options = apart([ONE, "s3://bucket/day/inner?endpoint=http://127.0.0.1:1"], [("endpoint", "elsewhere")])
    told = storage_options(options, {}, uri=uri)
    assert (told.endpoint, told.access_key) == (endpoint, key)
    assert "SECRET" not in repr(told)


def test_a_pattern_counts_up_to_its_first_name() -> None:
    _, options = apart(["s3://KEY:SECRET@bucket/snaps/2026*/b[12]"], [])
    assert storage_options(options, {}, uri="s3://bucket/snaps/2026-01-01/b1").access_key == "KEY"
    assert storage_options(options, {}, uri="s3://bucket/other").access_key is None


@pytest.mark.parametrize("value", ["", "{", "[]", '{"at": "s3://b"}', '{"at": "s3://b", "options": [1]}', "SECRET"])
def test_what_no_one_wrote_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(UsageError, match="there is no storage option at_7") as error:
        holding_at("s3://b", [("at_7", value)])
    assert "SECRET" not in str(error.value)
