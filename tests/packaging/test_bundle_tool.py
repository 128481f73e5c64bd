"""The one file of `make bundle-tool`: where it unpacks, what of that it runs again, and what it says where it cannot run.

Most of it is held to files made of two wheels of a few lines; the real one is made, and collects, in `make nightly`.
"""

import ast
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.version import __version__
from lab.bundle_tool import LARGEST_BYTES, LEFT_OUT, file_name, make_tool, write_tool
from lab.errors import LabError
from tests.conftest import second_user

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_logs"
PYTHON = os.path.realpath(sys.executable)
"""Behind the links of a virtual environment, so that with -I and -S it has nothing but its own library."""
FOLDER = "kafka-forensics-tool"
COMMAND = """
import os, sys
def run():
    import library, library.inner
    print(os.path.dirname(os.path.dirname(__file__)), *library.WORDS, *sys.argv[1:], flush=True)
    if "wait" in sys.argv:
        sys.stdin.read()
    print(*sys.path, sys.dont_write_bytecode, sep=os.pathsep, file=sys.stderr, flush=True)
    os._exit(int(sys.argv[-1]) if sys.argv[-1].isdigit() else 0)
"""


def wheel(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as opened:
        for name, text in files.items():
            opened.writestr(name, text)
    return path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("wheels")
    command = {
        "kafka_forensics/__init__.py": "",
        "kafka_forensics/__main__.py": COMMAND,
        "kafka_forensics-1.data/data/share/page": "x",
    }
    library = {
        "library/__init__.py": "WORDS = ['original']\n",
        "library/inner/__init__.py": "",
        "library/tests/test_it.py": "",
        "library/template.py": "{{ no Python }}",
        "library-1.data/platlib/beside.py": "",
    }
    return [
        wheel(place / "kafka_forensics-1-py3-none-any.whl", command),
        wheel(place / "library-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", library),
    ]


@pytest.fixture(scope="module")
def tool(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tool(tmp_path_factory.mktemp("tool") / "tool.pyz", wheels)


@pytest.fixture
def desk(tmp_path: Path, tool: Path) -> "Desk":
    return Desk(tmp_path, tool)


class Desk:
    """A cache directory and one for temporary files, both empty, and the file that is run with them."""

    def __init__(self, place: Path, tool: Path) -> None:
        self.cache, self.temporary, self.evidence = place / "home" / "cache", place / "temporary", place / "evidence"
        for directory in (self.cache, self.temporary, self.evidence):
            directory.mkdir(mode=0o700, parents=True)
        self.tool = tool
        self.environment = {"XDG_CACHE_HOME": str(self.cache), "TMPDIR": str(self.temporary), "HOME": str(self.cache.parent)}

    @property
    def kept(self) -> Path:
        [place] = (self.cache / FOLDER).iterdir()
        return place

    def command(self, *arguments: str | Path) -> list[str | Path]:
        return [PYTHON, "-I", "-S", self.tool, *arguments]

    def run(self, *arguments: str | Path, status: int = 0, timeout: int = 60) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            cwd=self.evidence,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            cwd=self.evidence,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def is_run_apart(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """It runs from a temporary directory, which is gone a moment later."""
        done = self.run(*arguments)
        assert done.stdout.startswith(f"{self.temporary}/{FOLDER}-"), done.stdout
        assert " original " in done.stdout
        self.is_tidied()
        return done

    def is_tidied(self) -> None:
        until = time.monotonic() + 20
        while list(self.temporary.iterdir()) and time.monotonic() < until:
            time.sleep(0.01)
        assert list(self.temporary.iterdir()) == []


def identities(place: Path) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in [place, *place.rglob("*")]}


def test_it_is_unpacked_once_for_its_user_alone(desk: Desk) -> None:
    assert desk.run("a", "--b", "0").stdout == f"{desk.kept} original a --b 0\n"
    first = identities(desk.kept)
    modes = {path: path.stat().st_mode & 0o777 for path in [desk.cache / FOLDER, *first]}
    assert {modes[path] for path in modes if path.is_dir()} == {0o700}
    assert {modes[path] for path in modes if not path.is_dir()} == {0o600}
    desk.run()
    assert identities(desk.kept) == first
    assert list(desk.temporary.iterdir()) == list(desk.evidence.iterdir()) == []


def test_it_holds_modules_compiled_and_nothing_that_is_not_needed(desk: Desk) -> None:
    desk.run()
    files = {path.relative_to(desk.kept).as_posix() for path in desk.kept.rglob("*") if path.is_file()}
    tag = sys.implementation.cache_tag
    assert files == {
        "kafka_forensics/__init__.py",
        f"kafka_forensics/__pycache__/__init__.{tag}.pyc",
        "kafka_forensics/__main__.py",
        f"kafka_forensics/__pycache__/__main__.{tag}.pyc",
        "library/__init__.py",
        f"library/__pycache__/__init__.{tag}.pyc",
        "library/inner/__init__.py",
        f"library/inner/__pycache__/__init__.{tag}.pyc",
        "library/template.py",
        "beside.py",
        f"__pycache__/beside.{tag}.pyc",
    }


def test_nothing_is_imported_from_elsewhere(desk: Desk) -> None:
    others = desk.evidence / "site-packages"
    others.mkdir()
    (others / "library.py").write_text("WORDS = ['of another']\n")
    (desk.evidence / "library.py").write_text("WORDS = ['of the current directory']\n")
    environment = {**desk.environment, "PYTHONPATH": f"{others}:"}
    done = subprocess.run([PYTHON, desk.tool], env=environment, cwd=desk.evidence, capture_output=True, text=True, check=True)
    assert done.stdout == f"{desk.kept} original\n"
    *paths, writes_nothing = done.stderr.strip().split(os.pathsep)
    assert (paths[0], writes_nothing) == (str(desk.kept), "True")
    assert all(path.startswith(sys.base_prefix) and "-packages" not in path for path in paths[1:])
    assert os.path.dirname(os.__file__) in paths


@pytest.mark.parametrize("status", [1, 3, 70, 141])
def test_its_exit_status_is_that_of_the_command(status: int, desk: Desk) -> None:
    desk.run(str(status), status=status)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("apart", [False, True])
def test_signals_end_it_and_nothing_stays_behind(number: signal.Signals, apart: bool, desk: Desk) -> None:
    if apart:
        desk.cache.chmod(0o777)
    process = desk.start("wait")
    assert process.stdout is not None
    place = Path(process.stdout.readline().split()[0])
    assert place.parent == (desk.temporary if apart else desk.cache / FOLDER)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    desk.is_tidied()


def _same_size(place: Path) -> None:
    (place / "library" / "__init__.py").write_text("WORDS = ['tampered']\n")


def _compiled(place: Path) -> None:
    [path] = (place / "library" / "__pycache__").iterdir()
    path.write_bytes(path.read_bytes().replace(b"original", b"tampered"))


def _replaced_by_link(place: Path) -> None:
    path = place / "library" / "__init__.py"
    path.rename(place.parent.parent / "elsewhere.py")
    path.symlink_to(place.parent.parent / "elsewhere.py")


def _directory_replaced_by_link(place: Path) -> None:
    path = place / "library"
    path.rename(place.parent.parent / "elsewhere")
    path.symlink_to(place.parent.parent / "elsewhere")


def _replaced_by_file(place: Path) -> None:
    place.rename(place.parent.parent / "elsewhere")
    place.write_text("")


def _replaced_by_pipe(place: Path) -> None:
    (place / "beside.py").unlink()
    os.mkfifo(place / "beside.py", 0o600)


TAMPERED: dict[str, Callable[[Path], object]] = {
    "another size": lambda place: (place / "library" / "__init__.py").write_text("WORDS = ['now tampered with']\n"),
    "the same size": _same_size,
    "compiled code": _compiled,
    "gone": lambda place: (place / "library" / "__init__.py").unlink(),
    "one more": lambda place: (place / "library" / "more.so").write_bytes(b""),
    "one more directory": lambda place: (place / "json").mkdir(),
    "a file that others may write to": lambda place: (place / "library" / "__init__.py").chmod(0o606),
    "a file that a group may write to": lambda place: (place / "library" / "__init__.py").chmod(0o660),
    "a directory that others may write to": lambda place: (place / "library").chmod(0o777),
    "a link to a file": _replaced_by_link,
    "a link to a directory": _directory_replaced_by_link,
    "a file in its place": _replaced_by_file,
    "a pipe": _replaced_by_pipe,
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_is_not_as_it_was_unpacked_is_not_run(how: str, desk: Desk) -> None:
    desk.run()
    name = desk.kept.name
    TAMPERED[how](desk.kept)
    assert desk.run().stdout == f"{desk.cache / FOLDER / name} original\n"
    first = identities(desk.kept)
    desk.run()
    assert identities(desk.kept) == first
    assert list(desk.temporary.iterdir()) == []


@pytest.mark.two_users
@pytest.mark.parametrize("place", ["library", "library/__init__.py"])
def test_what_belongs_to_another_user_is_not_run(place: str, desk: Desk) -> None:
    other = second_user()
    assert other is not None
    desk.run()
    os.chown(desk.kept / place, other, -1)
    assert " original" in desk.run().stdout
    assert {path.stat().st_uid for path in desk.kept.rglob("*")} == {os.geteuid()}


@pytest.mark.parametrize("directory", ["", FOLDER, "the tree"])
def test_where_others_may_write_nothing_is_kept(directory: str, desk: Desk) -> None:
    desk.run()
    place = desk.kept if directory == "the tree" else desk.cache / directory
    place.chmod(0o777)
    if directory == "the tree":
        assert desk.run().stdout == f"{place} original\n"
        assert place.stat().st_mode & 0o777 == 0o700
        return
    before = identities(desk.cache)
    assert f"others can write to {place}" in desk.is_run_apart("-v").stderr
    assert "removed at its end" not in desk.is_run_apart("scan").stderr
    assert identities(desk.cache) == before


def test_a_home_where_no_directory_can_be_made_is_no_hindrance(desk: Desk) -> None:
    desk.environment["XDG_CACHE_HOME"] = str(desk.tool)
    assert f"below {desk.tool.parent}" in desk.is_run_apart("--verbose").stderr


@pytest.mark.isolated
@pytest.mark.parametrize("mount", ["mount --bind -o ro {0} {0}", "mount -t tmpfs -o noexec,mode=700 tmpfs {0}"])
def test_a_home_that_is_read_only_or_loads_no_libraries_is_no_hindrance(mount: str, desk: Desk) -> None:
    script = f'mount --make-rprivate / && {mount.format(desk.cache)} && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script, "bash", *desk.command("-v")],
        env={**desk.environment, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(f"{desk.temporary}/{FOLDER}-")
    assert re.search("read-only file system" if "ro" in mount.split() else "is mounted noexec", done.stderr)
    desk.is_tidied()
    assert list(desk.cache.iterdir()) == []


def test_evidence_is_not_written_to(desk: Desk) -> None:
    """The place of kept code may be named as evidence, lie in it, or beside a partition; by any way of naming it."""
    partition = desk.cache / "orders-0"
    partition.mkdir()
    for words in (["scan", desk.cache], ["scan", f"b1={desk.cache.parent}"], ["scan", "--like", f"x={partition}/"]):
        desk.is_run_apart(*words)
    assert list(desk.cache.iterdir()) == [partition]
    desk.run("orders:0:1-2", "no-such-1", "--cache-dir", desk.cache)
    assert desk.kept.is_dir()


def test_the_cache_directory_that_is_asked_for_is_taken(desk: Desk) -> None:
    asked = desk.temporary / "asked"
    for words in (["--cache-dir", asked], [f"--cache-dir={asked}"]):
        assert desk.run(*words).stdout.startswith(f"{asked / FOLDER}/")
    assert list(desk.cache.iterdir()) == []
    desk.run("--cache-dir", "relative")
    assert desk.kept.is_dir()


def test_several_at_once_unpack_one_tree(desk: Desk) -> None:
    processes = [desk.start("wait") for _ in range(5)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert set(said) == {f"{desk.kept} original wait\n"}
    assert [process.returncode for process in processes] == [0] * 5


def test_what_is_old_goes_when_something_new_comes(desk: Desk) -> None:
    folder = desk.cache / FOLDER
    now = time.time()
    ages = {"0123456789abcdef": 31, "fedcba9876543210": 29, "0123456789abcdef.11.part": 2, "0123456789abcdef.22.part": 0.5}
    for name, days in ages.items():
        (folder / name / "inner").mkdir(parents=True)
        os.utime(folder / name, (now, now - days * 24 * 3600))
    folder.chmod(0o700)
    desk.run()
    assert {path.name for path in folder.iterdir()} > {"fedcba9876543210", "0123456789abcdef.22.part"}
    assert len(list(folder.iterdir())) == 3


def test_what_runs_is_not_old(desk: Desk) -> None:
    desk.run()
    os.utime(desk.kept, (0, 0))
    desk.run()
    assert desk.kept.stat().st_mtime > time.time() - 600


def test_without_any_place_it_says_so(desk: Desk) -> None:
    done = desk.run("scan", "/", status=2)
    error, hint = done.stderr.splitlines()
    assert error == "error: the libraries in this file cannot be unpacked: it would lie inside the input /"
    assert hint.startswith("hint: set XDG_CACHE_HOME to a directory that is yours alone")
    assert list(desk.cache.iterdir()) == list(desk.temporary.iterdir()) == []


def changed(tool: Path, place: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """A copy of the file in which `change` made each member anew."""
    written = io.BytesIO()
    with zipfile.ZipFile(tool) as old, zipfile.ZipFile(written, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    path = place / "changed.pyz"
    path.write_bytes(written.getvalue())
    return path


@pytest.mark.parametrize(
    ("made_for", "problem", "hint"),
    [
        ({"python": [3, 10]}, "this file runs with Python 3.10, and this is 3.", "run it as python3.10 FILE"),
        ({"system": ["linux", "s390x"]}, "this file runs on linux s390x, and this is ", "make the file on a system like this one"),
        (
            {"system": ["darwin", "arm64"]},
            "this file runs on darwin arm64, and this is ",
            "make the file on a system like this one",
        ),
        ({"glibc": [2, 999]}, "this file needs glibc 2.999 or newer, and here is ", "run it in a container"),
    ],
)
def test_where_it_cannot_run_it_says_so(made_for: dict[str, object], problem: str, hint: str, desk: Desk) -> None:
    def change(name: str, data: bytes) -> bytes:
        if name != "contents.json":
            return data
        read = json.loads(data)
        return json.dumps({**read, "made_for": {**read["made_for"], **made_for}}).encode()

    desk.tool = changed(desk.tool, desk.evidence, change)
    first, second = desk.run("--help", status=2).stderr.splitlines()
    assert first.startswith(f"error: {problem}")
    assert second.startswith(f"hint: {hint}")
    assert list(desk.cache.iterdir()) == []


def test_old_pythons_understand_what_runs_first() -> None:
    text = (ROOT / "lab" / "bundle_tool_start.py").read_text()
    tree = ast.parse(text, feature_version=(3, 4))
    assert not any(isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr | ast.FunctionDef) for node in ast.walk(tree))
    assert text.isascii()


def test_a_damaged_file_runs_nothing(desk: Desk) -> None:
    desk.tool = changed(desk.tool, desk.evidence, lambda name, data: data[:60] + b"x" + data[61:] if "library" in name else data)
    error, hint = desk.run(status=2).stderr.splitlines()
    assert error == f"error: {desk.tool}: wheels/library-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl is damaged"
    assert hint.startswith("hint: copy the file here again")
    assert list((desk.cache / FOLDER).iterdir()) == []


def test_the_same_wheels_give_the_same_file(wheels: list[Path], tool: Path, tmp_path: Path) -> None:
    assert write_tool(tmp_path / "again.pyz", wheels[::-1]).read_bytes() == tool.read_bytes()
    assert os.access(tool, os.X_OK)
    with zipfile.ZipFile(tool) as opened:
        assert json.loads(opened.read("contents.json"))["made_for"]["glibc"] == [2, 17]


def test_wheels_of_one_machine_and_of_the_same_file_are_refused(wheels: list[Path], tmp_path: Path) -> None:
    own = wheel(tmp_path / "own-1-cp311-cp311-linux_x86_64.whl", {"own.py": ""})
    with pytest.raises(LabError, match="was made for this machine alone"):
        write_tool(tmp_path / "tool.pyz", [*wheels, own])
    twin = wheel(tmp_path / "twin-1-py3-none-any.whl", {"library/__init__.py": ""})
    with pytest.raises(LabError, match=r"holds library/__init__\.py, as another wheel does"):
        write_tool(tmp_path / "tool.pyz", [*wheels, twin])


def test_the_page_names_the_file_and_what_is_left_out() -> None:
    page = (ROOT / "docs" / "bundle-tool.md").read_text()
    assert re.sub(r"kafka-forensics-[^-]+-", "kafka-forensics-VERSION-", file_name()).startswith("kafka-forensics-VERSION-")
    assert f"{LARGEST_BYTES // 1_000_000} MB" in page
    assert [pattern for pattern in LEFT_OUT if f"`{pattern}`" not in page] == []


@pytest.fixture(scope="module")
def real_tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tool(tmp_path_factory.mktemp("dist"))


def findings(out: str) -> list[tuple[object, ...]]:
    """What is found, without what only keys tell, which no bundle holds."""
    fields = ("kind", "severity", "topic", "partition", "broker", "file", "byte_start", "offset_start", "offset_end")
    return [
        tuple(finding[field] for field in fields) for finding in json.loads(out)["findings"] if finding["kind"] != "KEY_PLACEMENT"
    ]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_it_collects_where_nothing_is_but_python(real_tool: Path, tmp_path: Path) -> None:
    assert real_tool.name == file_name()
    assert real_tool.stat().st_size <= LARGEST_BYTES
    desk = Desk(tmp_path, real_tool)
    assert desk.run("--version", timeout=300).stdout == f"kafka-forensics {__version__}\n"
    first = identities(desk.kept)
    bundle = tmp_path / "b1.kfb"
    desk.run("collect", SAMPLES / "healthy" / "broker-1", "--output", bundle)
    of_bundle = findings(desk.run("scan", "--format", "json", bundle).stdout)
    assert of_bundle == findings(desk.run("scan", "--format", "json", SAMPLES / "healthy" / "broker-1").stdout)
    assert of_bundle != []
    assert "--with-records" in desk.run("collect", "--help").stdout
    assert "no such file" in desk.run("collect", tmp_path / "nothing", "--output", bundle, status=2).stderr
    assert "UNCLEAN_LOSS" in desk.run("scan", SAMPLES / "unclean-election", status=1).stdout
    assert identities(desk.kept) == first


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_nothing_is_missing_of_what_commands_load(real_tool: Path, tmp_path: Path) -> None:
    desk = Desk(tmp_path, real_tool)
    rows = dict(
        re.findall(r"^(\w[^\t]*)\t(ok|absent|broken)", desk.run("doctor", "--format", "tsv", timeout=300).stdout, re.MULTILINE)
    )
    assert "broken" not in {status for name, status in rows.items() if name not in ("java", "spark")}
    desk.environment["KAFKA_FORENSICS_KERNELS"] = "compiled"
    desk.run("scan", "--deep", SAMPLES / "healthy", timeout=300)
    desk.run("export", SAMPLES / "healthy", "--output", tmp_path / "facts", timeout=300)
    desk.run("report", SAMPLES / "healthy", "--output", tmp_path / "report.html", timeout=300)
    assert len(list((desk.cache / "kafka-forensics").iterdir())) == 1
