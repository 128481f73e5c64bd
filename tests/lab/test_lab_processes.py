"""What `/proc` tells of processes: where they listen, and which mention a text."""

import os
import socket
import subprocess
import sys
import uuid

import pytest

from lab.processes import listening, mentioning


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_a_listening_socket_is_seen_with_its_address(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.bind((address, 0))
        here = (address, one.getsockname()[1])
        assert here not in listening(os.getpid()), "bound is not listening"
        one.listen()
        assert here in listening(os.getpid())
    assert here not in listening(os.getpid())


def test_whoever_started_this_process_is_not_left_behind() -> None:
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
