"""Options of storage services: where they come from, their limits, and that secrets in them are never shown."""

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.storage.remote.open import open_filesystem
from kafka_forensics.storage.remote.options import HIDDEN, StorageOptions, option_pair, storage_options
from kafka_forensics.storage.remote.uris import options_for_uri, remote_place, without_uri_options

SECRET = "s3cr3t-for-tests"  # noqa: S105 - a name for tests
ENVIRONMENT = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AZURE_CLIENT_SECRET": "azure-" + SECRET,
}


def test_options_come_from_pairs_and_then_from_the_environment() -> None:
    options = storage_options([("region", "eu-west-1"), ("access-key", "key"), ("Token", SECRET)], ENVIRONMENT)
    assert (options.endpoint, options.scheme, options.region) == ("127.0.0.1:9", "http", "eu-west-1")
    assert options.access_key == "key"
    assert options.other == (("token", SECRET),)
    assert storage_options(options) is options
    assert storage_options({"region": "a"}, {}) == StorageOptions(region="a")
    assert storage_options(None, {}) == StorageOptions()


def test_options_of_a_uri_precede_others() -> None:
    options = storage_options({"region": "a", "endpoint": "http://one:1", "block_mib": "16"}, ENVIRONMENT)
    more = options.with_options([("region", "b"), ("endpoint", "https://two")])
    assert (more.region, more.endpoint, more.scheme, more.block_mib) == ("b", "two", "https", 16)
    assert more.environment_secrets == options.environment_secrets


def test_secrets_are_never_shown() -> None:
    pairs = [("access_key", "AKIA12345"), ("secret_key", SECRET), ("session_token", "t" + SECRET), ("account_key", "k" + SECRET)]
    options = storage_options([*pairs, ("account_name", "accountname"), ("region", "r")], ENVIRONMENT)
    for text in (repr(options), str(options), f"{options}"):
        assert SECRET not in text
        assert "AKIA12345" not in text
    assert "account_name='accountname'" in repr(options)
    assert "secret_key=***" in repr(options)
    for _, value in pairs:
        assert options.hide(f"error: {value}!") == f"error: {HIDDEN}!"
    assert options.hide("azure-" + SECRET) == HIDDEN
    assert options.hide("accountname") == "accountname"


@pytest.mark.parametrize(
    "pairs",
    [
        {"scheme": "ftp"},
        {"endpoint": f"http://key:{SECRET}@host"},
        {"endpoint": f"ftp://{SECRET}"},
        {"anonymous": SECRET},
        {"block_mib": SECRET},
        {"block_mib": "7"},
        {"block_mib": "33"},
    ],
)
def test_an_invalid_option_is_named_without_its_value(pairs: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        storage_options(pairs, {})
    assert next(iter(pairs)) in str(caught.value)
    assert SECRET not in f"{caught.value} {caught.value.hint}"


def test_invalid_pairs_of_the_command_line_are_refused_without_their_text() -> None:
    assert option_pair("secret_key=a=b") == ("secret_key", "a=b")
    for text in (SECRET, f"={SECRET}", f"a b={SECRET}"):
        with pytest.raises(UsageError, match="takes KEY=VALUE") as caught:
            option_pair(text)
        assert SECRET not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("uri", "name", "scheme", "root", "options"),
    [
        ("s3://bucket", "s3://bucket", "s3", "bucket", {}),
        ("S3A://bucket/a//b c%20/", "s3a://bucket/a//b c%20", "s3", "bucket/a//b c%20", {}),
        (f"s3://key:{SECRET}@bucket/x", "s3://bucket/x", "s3", "bucket/x", {"access_key": "key", "secret_key": SECRET}),
        ("s3://bucket/x?region=r&endpoint_override=h:1", "s3://bucket/x", "s3", "bucket/x", {"region": "r", "endpoint": "h:1"}),
        ("s3://bucket/what?", "s3://bucket/what?", "s3", "bucket/what?", {}),
        ("s3://bucket/a?b=c", "s3://bucket/a?b=c", "s3", "bucket/a?b=c", {}),
        ("gcs://anonymous@bucket", "gcs://bucket", "gs", "bucket", {"anonymous": "true"}),
        (f"abfss://box:{SECRET}@a.b.c/x", "abfss://box@a.b.c/x", "abfs", "box@a.b.c/x", {"account_key": SECRET}),
        ("hdfs://me@host:8020/x", "hdfs://host:8020/x", "hdfs", "host:8020/x", {"user": "me"}),
        ("hdfs:///x", "hdfs:///x", "hdfs", "/x", {}),
        (f"sftp://u:{SECRET}@h/x", "sftp://h/x", "sftp", "h/x", {"username": "u", "password": SECRET}),
        (f"https://h/x?sig={SECRET}", "https://h/x", "https", "h/x", {"query": f"sig={SECRET}"}),
    ],
)
def test_a_uri_is_divided_into_name_scheme_root_and_options(
    uri: str, name: str, scheme: str, root: str, options: dict[str, str]
) -> None:
    place = remote_place(uri)
    assert (place.name, place.scheme, place.root, dict(place.options)) == (name, scheme, root, options)
    assert SECRET not in repr(place)
    assert remote_place(place.name).name == place.name


@pytest.mark.parametrize(
    "uri", ["s3://", "s3:///x", f"s3://k:{SECRET}@/x", f"s3://k:{SECRET}@b/../x", "gs://b/./x", "abfs://b/x\0"]
)
def test_an_invalid_uri_is_refused(uri: str) -> None:
    with pytest.raises(UsageError) as caught:
        remote_place(uri)
    assert SECRET not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("uri", "pairs"),
    [
        ("s3://b/x", {"role_arn": "arn:aws:iam::1:role/r", "access_key": "AKIA1", "secret_key": "SECRETVALUE"}),
        ("s3://b/x", {"anonymous": "true", "access_key": "AKIA1", "secret_key": "SECRETVALUE"}),
        ("s3://b/x", {"session_token": "SECRETVALUE"}),
        ("abfs://c@account.dfs.core.windows.net/x", {"tenant_id": "t"}),
    ],
    ids=["role-and-keys", "anonymous-with-keys", "token-alone", "tenant-alone"],
)
def test_contradicting_options_are_refused(uri: str, pairs: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="conflict") as error:
        open_filesystem(remote_place(uri), storage_options(pairs, {"AWS_REGION": "us-east-1"}))
    assert "SECRETVALUE" not in str(error.value)


URI_WITH_SECRETS = "s3://KEY:SECRET@bucket/day?endpoint=http://127.0.0.1:9000"


def test_options_of_uris_are_moved_out_of_paths() -> None:
    paths, options = without_uri_options(
        [URI_WITH_SECRETS, f"1={URI_WITH_SECRETS}", f"day=1={URI_WITH_SECRETS}", "/copies/b1", "file:///copies/b=2"],
        [("region", "here")],
    )
    bare = "s3://bucket/day"
    assert paths == [bare, f"1={bare}", f"day=1={bare}", "/copies/b1", "file:///copies/b=2"]
    assert options[0] == ("region", "here")
    assert [name for name, _ in options[1:]] == ["at_0"]
    assert without_uri_options(paths, options) == (paths, options)


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
def test_options_apply_below_their_uri_and_the_nearest_uri_wins(uri: str, endpoint: str, key: str | None) -> None:
    _, options = without_uri_options(
        [URI_WITH_SECRETS, "s3://bucket/day/inner?endpoint=http://127.0.0.1:1"], [("endpoint", "elsewhere")]
    )
    reported = storage_options(options, {}, uri=uri)
    assert (reported.endpoint, reported.access_key) == (endpoint, key)
    assert "SECRET" not in repr(reported)


def test_options_of_a_pattern_apply_below_the_path_before_it() -> None:
    _, options = without_uri_options(["s3://KEY:SECRET@bucket/snaps/2026*/b[12]"], [])
    assert storage_options(options, {}, uri="s3://bucket/snaps/2026-01-01/b1").access_key == "KEY"
    assert storage_options(options, {}, uri="s3://bucket/other").access_key is None


@pytest.mark.parametrize("value", ["", "{", "[]", '{"at": "s3://b"}', '{"at": "s3://b", "options": [1]}', "SECRET"])
def test_forged_options_are_refused_and_not_shown(value: str) -> None:
    with pytest.raises(UsageError, match="there is no storage option at_7") as error:
        options_for_uri("s3://b", [("at_7", value)])
    assert "SECRET" not in str(error.value)
