"""Compiled code is cached where no other user can change it and never in inputs; code in other directories is not run."""

import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import kafka_forensics
from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.parsers.kernels import compiling
from kafka_forensics.parsers.kernels.compiling import Kernel, kernel, kernel_directory
from kafka_forensics.parsers.kernels.crc import crc32c
from kafka_forensics.scanning.engine.serialization import pack
from kafka_forensics.scanning.engine.task_values import TaskArguments, shared_inputs
from kafka_forensics.scanning.engine.tasks import unpack_common
from kafka_forensics.scanning.judging.whole_scan import digest_key
from kafka_forensics.storage import code_cache
from kafka_forensics.storage.code_cache import (
    NoCacheDirectoryError,
    exclude_input,
    mark_used,
    private_cache_directory,
    set_cache_directory,
)
from kafka_forensics.storage.open import open_source
from tests.conftest import second_user
from tests.support.places import SAMPLES

SAMPLE = SAMPLES / "healthy" / "broker-1"
KEY = "0123456789abcdef"
NAME = "kernel.nbc"
CHECK_BYTES = b"123456789"
CHECK_CRC = 0xE3069283


def cache_path() -> str:
    return private_cache_directory("kafka-forensics", KEY, make=False)


def write() -> None:
    """Cache code if a directory is available."""
    with suppress(NoCacheDirectoryError):
        directory = private_cache_directory("kafka-forensics", KEY, make=True)
        mark_used.__wrapped__(directory)
        Path(directory, NAME).write_bytes(b"code")


def cached_files() -> dict[str, bytes]:
    """name → content of files in the cache directory of this process."""
    try:
        return {path.name: path.read_bytes() for path in Path(cache_path()).iterdir()}
    except (NoCacheDirectoryError, FileNotFoundError):
        return {}


@pytest.fixture(autouse=True)
def no_cache_directory_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without a requested cache directory, and without inputs."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    code_cache._inputs.clear()
    code_cache._above_inputs.clear()
    compiling._log_not_cached.cache_clear()
    before = next(iter(code_cache._requested), None)
    set_cache_directory(None)
    yield
    set_cache_directory(before)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home directory in the password database."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(home)))
    return home


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An existing absolute XDG_CACHE_HOME."""
    place = tmp_path / "place"
    place.mkdir(mode=0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    return place


def reason() -> str:
    """Why there is no cache directory; empty if there is one."""
    try:
        cache_path()
    except NoCacheDirectoryError as error:
        return str(error)
    return ""


def assert_refused(words: str, *untouched: Path) -> None:
    """Nothing is written, created or read, and `words` are in the reason."""
    before = [sorted(path.rglob("*")) for path in untouched]
    write()
    assert cached_files() == {}
    assert [sorted(path.rglob("*")) for path in untouched] == before
    assert words in reason()


def assert_cached(directory: Path) -> None:
    write()
    assert cached_files() == {NAME: b"code"}
    assert Path(cache_path()) == directory / "kafka-forensics" / KEY
    assert (directory / "kafka-forensics" / KEY / NAME).read_bytes() == b"code"


def test_code_is_cached_in_a_private_directory(place: Path) -> None:
    assert_cached(place)
    for path in (place / "kafka-forensics", place / "kafka-forensics" / KEY):
        assert path.stat().st_mode & 0o777 == 0o700
    assert os.listdir(place / "kafka-forensics" / KEY) == [NAME]


def test_a_named_directory_is_created_when_code_is_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a" / "b"))
    assert (cached_files(), reason()) == ({}, "")
    assert list(tmp_path.iterdir()) == []
    assert_cached(tmp_path / "a" / "b")


@pytest.mark.parametrize("environment", [{}, {"HOME": "."}, {"HOME": "{elsewhere}"}, {"HOME": ""}], ids=str)
@pytest.mark.parametrize("named", [None, "", "relative", ".", "./"])
def test_home_comes_from_the_password_database(
    monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path, environment: dict[str, str], named: str | None
) -> None:
    """HOME and a relative XDG_CACHE_HOME are ignored, because they may name evidence in the current directory."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("HOME", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(elsewhere=elsewhere))
    if named is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert_cached(home / ".cache")
    assert list(elsewhere.iterdir()) == []


def test_the_option_precedes_the_environment(place: Path, tmp_path: Path) -> None:
    set_cache_directory(str(tmp_path / "option"))
    assert_cached(tmp_path / "option")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("directory", ["/nonexistent/home", "", "home", None])
def test_a_missing_home_is_not_created(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, directory: str | None) -> None:
    def entry(user: int) -> SimpleNamespace:
        if directory is None:
            raise KeyError(user)
        return SimpleNamespace(pw_dir=directory)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pwd, "getpwuid", entry)
    assert_refused("no such directory" if directory == "/nonexistent/home" else "knows no home directory", tmp_path)


@pytest.mark.parametrize(
    ("named", "input_path"),
    [
        ("{place}", "{place}"),
        ("{place}/x", "{place}"),
        ("{place}/x/y", "{place}"),
        ("{link}/cache", "file://{place}"),  # reached through a link
        ("{place}", "{link}"),
    ],
)
def test_no_code_is_cached_in_an_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, input_path: str
) -> None:
    (place / "x").mkdir()
    (tmp_path / "link").symlink_to("place")
    monkeypatch.setenv("XDG_CACHE_HOME", named.format(place=place, link=tmp_path / "link"))
    open_source(input_path.format(place=place, link=tmp_path / "link"))
    assert_refused("inside the input", place)


@pytest.mark.parametrize("folder", ["evidence", "kafka-forensics/evidence", f"kafka-forensics/{KEY}/evidence"])
@pytest.mark.parametrize("kind", ["directory", "file", "archive"])
def test_no_code_is_cached_above_an_input(place: Path, folder: str, kind: str) -> None:
    path = place / folder
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if kind == "directory":
        path.mkdir()
    else:
        path = path.with_suffix(".log" if kind == "file" else ".tar")
        path.write_bytes(bytes(1024))
    open_source(str(path))
    assert_refused("an input is below", place)


def test_old_kernels_in_an_input_are_not_removed(place: Path) -> None:
    evidence = place / "kafka-forensics" / ("f" * len(KEY)) / "log"
    evidence.mkdir(parents=True, mode=0o700)
    os.utime(evidence.parent, (1, 1))
    open_source(str(evidence))
    assert_refused("an input is below", place)


def test_kernels_inside_an_input_are_not_loaded(place: Path) -> None:
    assert_cached(place)
    exclude_input(str(place))
    assert cached_files() == {}


def test_missing_inputs_exclude_nothing(place: Path) -> None:
    """The inode of a deleted input may be reused by another directory."""
    assert_cached(place)
    directory = (place / "kafka-forensics" / KEY).stat()
    for directories in (code_cache._inputs, code_cache._above_inputs):
        directories[directory.st_dev, directory.st_ino] = str(place / "gone")
    for path in ("/nowhere/at/all", "s3://bucket/key"):
        exclude_input(path)
    assert_cached(place)


@pytest.mark.parametrize("which", ["above", "place", "kafka-forensics", KEY])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o757, 0o722])
def test_a_directory_writable_by_others_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch, which: str, mode: int) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "place"))
    write()
    path = place if which == "above" else next(path for path in place.rglob(which))
    path.chmod(mode)
    assert_refused("others can write" if which in ("above", "place") else "", place)
    assert reason()


def test_a_sticky_directory_may_contain_the_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sticky directory, no user can remove files of another user."""
    place.chmod(0o1777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "mine"))
    assert_cached(place / "mine")
    for folder in (place / "mine" / "kafka-forensics" / KEY, place / "mine" / "kafka-forensics"):
        folder.chmod(0o1777)
        assert_refused("not accessible only by this user", place)
        folder.chmod(0o700)


def test_links_of_the_user_are_followed(place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "disk" / "folder").mkdir(parents=True)
    (tmp_path / "disk" / "link").symlink_to("./folder/../../place")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "absolute"))
    (tmp_path / "absolute").symlink_to(tmp_path / "disk" / "link")
    write()
    assert (place / "kafka-forensics" / KEY / NAME).read_bytes() == cached_files()[NAME] == b"code"


def test_links_to_files_or_shared_directories_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "one").symlink_to("other")
    (place / "other").symlink_to("one")
    (place / "file" / "kafka-forensics").parent.mkdir()
    (place / "file" / "kafka-forensics").write_bytes(b"")
    (place / "open" / "inner").mkdir(parents=True)
    (place / "open").chmod(0o777)
    (place / "link").symlink_to("open/inner")
    for named, words in {"one": "not a directory", "file": "not a directory", "link": "others can write"}.items():
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / named))
        assert_refused(words, place)


def wrong_crc(buffer: object, start: int, end: int, crc: int) -> int:
    return 666


wrong_crc.__module__ = "kafka_forensics.parsers.kernels.crc"  # another process imports it


def crc_by(form: Kernel[int]) -> int:
    return form.compiled(np.frombuffer(CHECK_BYTES, np.uint8), 0, 9, 0)


def test_only_kernels_unused_for_a_month_are_removed(place: Path) -> None:
    caches = place / "kafka-forensics"
    caches.mkdir(mode=0o700)
    for name in ("0" * 16, "1" * 16, "2" * 15, "notes"):
        (caches / name).mkdir()
        (caches / name / "some.nbc").write_bytes(b"")
    (caches / ("3" * 16)).symlink_to("notes")
    (caches / ("4" * 16)).write_bytes(b"")
    for name in ("0" * 16, "2" * 15, "notes", "4" * 16):
        os.utime(caches / name, (1, 1))
    os.utime(caches / ("3" * 16), (1, 1), follow_symlinks=False)
    yesterday = time.time() - 86400
    os.utime(caches / ("1" * 16), (yesterday, yesterday))
    write()
    assert {path.name for path in caches.iterdir()} == {"1" * 16, "2" * 15, "notes", "3" * 16, "4" * 16, KEY}
    assert os.listdir(caches / "notes") == ["some.nbc"]


def put_wrong_kernel() -> Path:
    """A compiled kernel that returns 666, in place of the real one."""
    assert crc_by(crc32c) == CHECK_CRC
    cached_code = next(Path(kernel_directory(make=False)).rglob("*crc32c*.nbc"))
    assert crc_by(kernel(wrong_crc)) == 666
    shutil.copyfile(next(Path(kernel_directory(make=False)).rglob("*wrong_crc*.nbc")), cached_code)
    return cached_code


COMMAND = (
    "import sys, numpy as np\n"
    "from kafka_forensics.storage.open import open_source\n"
    "for path in sys.argv[1:]: open_source(path)\n"
    "from kafka_forensics.parsers.kernels.crc import crc32c\n"
    f"print(crc32c.compiled(np.frombuffer({CHECK_BYTES!r}, np.uint8), 0, 9, 0))\n"
)


def crc_of_a_process(place: Path, *inputs: Path) -> int:
    environment = os.environ | {"XDG_CACHE_HOME": str(place)}
    command = [sys.executable, "-c", COMMAND, *map(str, inputs)]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def test_compiled_kernels_in_an_input_are_not_run(place: Path) -> None:
    """Code outside of inputs is run, because only the user can write there; so the attack would work."""
    wrong_kernel = put_wrong_kernel()
    before = wrong_kernel.read_bytes()
    assert crc_of_a_process(place) == 666
    assert crc_of_a_process(place, place) == CHECK_CRC
    assert wrong_kernel.read_bytes() == before


def test_numba_settings_in_an_input_are_ignored(tmp_path: Path) -> None:
    """Settings change how kernels are compiled; this one disables compilation."""
    (tmp_path / ".numba_config.yaml").write_text("disable_jit: 1\n")
    program = COMMAND + "import numba\nprint(numba.config.DISABLE_JIT, numba.config.OPT == 2, None in sys.modules.values())\n"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "NUMBA_OPT": "2"}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{CHECK_CRC}\n0 True False\n", "")


@pytest.mark.parametrize("named", ["relative", "./x", ""])
def test_a_relative_cache_directory_is_refused(named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["scan", "--cache-dir", named, str(SAMPLE)]) == 2
    assert "not an absolute path" in capsys.readouterr().err


def test_the_command_line_and_the_library_set_the_cache_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["scan", "-q", "--fail-on", "none", "--cache-dir", str(tmp_path), str(SAMPLE)]) == 0
    assert code_cache._requested == [str(tmp_path)]
    kafka_forensics.scan(str(SAMPLE), topic="orders", cache_dir=str(tmp_path / "other"))
    assert code_cache._requested == [str(tmp_path / "other")]
    assert list(tmp_path.iterdir()) == []
    kafka_forensics.scan(str(SAMPLE), topic="orders")
    assert code_cache._requested == []
    with pytest.raises(UsageError, match="not an absolute path"):
        kafka_forensics.scan(str(SAMPLE), cache_dir="relative")


def test_single_files_are_inputs(tmp_path: Path) -> None:
    path = tmp_path / "evidence" / "00000000000000000000.log"
    path.parent.mkdir()
    shutil.copy(SAMPLE / "orders-0" / path.name, path)
    set_cache_directory(str(path.parent))
    assert sum(batch.num_rows for batch in kafka_forensics.read_records(str(path))) > 0
    assert_refused("an input is below", tmp_path)


def test_workers_cache_no_code_in_any_input(tmp_path: Path) -> None:
    """A Spark worker opens only some of the inputs, but others may be on its machine."""
    inputs = gather([str(SAMPLE)], ScanOptions())
    common = TaskArguments(
        ScanOptions(cache_dir=str(tmp_path)), digest_key(), work_bytes=1 << 30, split_bytes=1 << 20, shared=shared_inputs(inputs)
    )
    common.shared.places.append(str(tmp_path))
    packed = pack(common)
    set_cache_directory(None)
    unpack_common(packed)
    assert code_cache._requested == [str(tmp_path)]
    assert_refused("inside the input", tmp_path)
    assert os.path.realpath(SAMPLE) in code_cache._inputs.values()


ATTACK = "import os, sys; os.setgroups([]); os.setgid({user}); os.setuid({user}); {what}"


def attack(what: str) -> None:
    """Run Python code as another user."""
    subprocess.run([sys.executable, "-c", ATTACK.format(user=second_user(), what=what)], cwd="/", check=True)


@pytest.fixture
def shared_directory(tmp_path: Path) -> Path:
    """A directory like /tmp, in which another user can write."""
    for path in (tmp_path, *tmp_path.parents):
        if path.parent == Path("/") or path.stat().st_uid != os.geteuid():
            break
        path.chmod(path.stat().st_mode | 0o011)
    shared_directory = tmp_path / "street"
    shared_directory.mkdir()
    shared_directory.chmod(0o1777)
    return shared_directory


@pytest.mark.two_users
def test_root_refuses_a_path_below_another_users_directory(shared_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other user owns a parent directory, and replaces root's directory by one with other code."""
    attack(f"os.mkdir('{shared_directory}/his')")
    place = shared_directory / "his" / "cache"
    place.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    assert_refused(f"{shared_directory}/his belongs to another user", shared_directory)
    folder = f"kafka-forensics/{compiling._cache_key(Path(compiling.__file__).parents[2])}"
    attack(
        f"os.rename('{place}', '{shared_directory}/his/before'); os.makedirs('{place}/{folder}', 0o700);"
        f" open('{place}/{folder}/crc32c.nbi', 'wb').write(b'wrong')"
    )
    before = sorted(shared_directory.rglob("*"))
    assert crc_of_a_process(place) == CHECK_CRC
    assert sorted(shared_directory.rglob("*")) == before


@pytest.mark.two_users
@pytest.mark.parametrize("folder", ["", "kafka-forensics", f"kafka-forensics/{KEY}"])
def test_directories_of_another_user_are_refused(place: Path, folder: str) -> None:
    user = second_user()
    assert user is not None
    assert_cached(place)
    os.chown(place / folder, user, user)
    assert cached_files() == {}
    assert reason()


@pytest.mark.two_users
def test_another_users_directory_in_a_shared_one_is_refused(
    shared_directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "roots").mkdir()
    attack(f"os.mkdir('{shared_directory}/directory', 0o755); os.symlink('{tmp_path}/roots', '{shared_directory}/link')")
    for name in ("directory", "link"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(shared_directory / name))
        assert_refused("belongs to another user", shared_directory, tmp_path / "roots")
    (shared_directory / "link-of-root").symlink_to(tmp_path / "roots")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_directory / "link-of-root"))
    write()
    assert (tmp_path / "roots" / "kafka-forensics" / KEY / NAME).read_bytes() == cached_files()[NAME] == b"code"
