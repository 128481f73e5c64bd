"""The laboratory without brokers: copies, checkpoints, listening sockets, processes."""

import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lab.files import copy_tree, parse_offset_checkpoint, read_offset_checkpoint
from lab.processes import listening, mentioning


def test_a_tree_is_copied_without_locks_and_never_over_another(tmp_path: Path) -> None:
    source = tmp_path / "broker-1"
    (source / "audit-0").mkdir(parents=True)
    (source / ".lock").touch()
    (source / ".kafka_cleanshutdown").write_text("{}")
    (source / "audit-0" / "partition.metadata").write_text("version: 0")
    copy_tree(source, tmp_path / "copy")
    found = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*")}
    assert found == {".kafka_cleanshutdown", "audit-0", "audit-0/partition.metadata"}
    with pytest.raises(FileExistsError):
        copy_tree(source, tmp_path / "copy")


def test_a_malformed_checkpoint_is_refused_and_read_as_empty(tmp_path: Path) -> None:
    assert parse_offset_checkpoint("0\n2\naudit 0 370\na-b.c 12 0\n") == {("audit", 0): 370, ("a-b.c", 12): 0}
    assert read_offset_checkpoint(tmp_path / "checkpoint") == {}
    for text in ("", "0\n", "0\n2\naudit 0 370\n", "1\n0\n", "0\n1\naudit 370\n"):
        with pytest.raises(ValueError):
            parse_offset_checkpoint(text)
        (tmp_path / "checkpoint").write_text(text)
        assert read_offset_checkpoint(tmp_path / "checkpoint") == {}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_a_listening_socket_is_found_with_its_address(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((address, 0))
        bound = (address, listener.getsockname()[1])
        assert bound not in listening(os.getpid()), "bound is not listening"
        listener.listen()
        assert bound in listening(os.getpid())
    assert bound not in listening(os.getpid())


def test_parents_of_this_process_are_not_reported() -> None:
    mark = uuid.uuid4().hex
    code = "import sys; from lab.processes import mentioning; print(mentioning(sys.argv[1]))"
    inner = [sys.executable, "-c", code, mark]
    outer = f"import subprocess; subprocess.run({inner!r}, check=True)"
    done = subprocess.run([sys.executable, "-c", outer, mark], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "{}\n"


def test_a_process_is_found_by_its_command_line_until_it_ends() -> None:
    mark = uuid.uuid4().hex
    command = [sys.executable, "-c", "import sys; print('here', flush=True); sys.stdin.read()", mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"here\n", "only then does its command line stand where others see it"
        assert list(mentioning(mark)) == [started.pid]
        started.communicate(timeout=30)
    assert mentioning(mark) == {}
