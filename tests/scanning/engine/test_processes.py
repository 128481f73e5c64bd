"""Work in forked processes gives the same answers in order, even if they are killed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafka_forensics.scanning.engine.processes import can_fork, forked

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are copied on Linux alone")


def squared(number: int) -> bytes:
    return f"{number * number} {os.getpid()}".encode()


@pytest.mark.parametrize(("count", "jobs"), [(0, 2), (1, 2), (2, 1), (3, 5), (100, 2)])
def test_answers_come_in_order_the_first_from_the_parent(count: int, jobs: int) -> None:
    answers = [answer.split() for answer in forked(squared, count, jobs)]
    assert [int(square) for square, _ in answers] == [number * number for number in range(count)]
    doers = [int(doer) for _, doer in answers]
    assert doers[:1] == [os.getpid()][:count]
    assert os.getpid() not in doers[1:]
    assert len(set(doers[1:])) <= jobs
    assert multiprocessing.active_children() == []


def test_large_answers_arrive_complete() -> None:
    answers = list(forked(lambda number: bytes([number]) * (3 << 20), 9, 2))
    assert [(set(answer), len(answer)) for answer in answers] == [({number}, 3 << 20) for number in range(9)]


@pytest.mark.parametrize("deadly", [{1, 2}, set(range(1, 40))])
def test_the_parent_does_what_a_killed_copy_did_not_finish(deadly: set[int], caplog: pytest.LogCaptureFixture) -> None:
    before = os.getpid()

    def task(number: int) -> bytes:
        if number in deadly and os.getpid() != before:
            os.kill(os.getpid(), signal.SIGKILL)
        return squared(number)

    answers = [answer.split() for answer in forked(task, 40, 2)]
    assert [int(square) for square, _ in answers] == [number * number for number in range(40)]
    assert all(int(answers[number][1]) == before for number in deadly)
    assert "its work continues here" in caplog.text
    assert multiprocessing.active_children() == []


def test_an_error_of_a_task_is_raised_in_the_parent(capfd: pytest.CaptureFixture[str]) -> None:
    def task(number: int) -> bytes:
        if number == 7:
            raise ZeroDivisionError(f"as task {number} does")
        return b""

    with pytest.raises(ZeroDivisionError, match="as task 7 does"):
        list(forked(task, 20, 2))
    assert "Traceback" not in capfd.readouterr().err
    assert multiprocessing.active_children() == []


def test_closing_the_answers_kills_the_copies() -> None:
    answers = forked(squared, 1000, 3)
    with closing(answers):
        next(answers)
        next(answers)
        assert len(multiprocessing.active_children()) == 3
    assert multiprocessing.active_children() == []


def test_the_parent_does_everything_if_the_system_refuses_to_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", Mock(side_effect=BlockingIOError("no more processes")))
    assert [answer.split()[1] for answer in forked(squared, 5, 2)] == [str(os.getpid()).encode()] * 5


def test_a_daemonic_worker_does_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_fork()
    monkeypatch.setattr(multiprocessing, "current_process", lambda: type("Helper", (), {"daemon": True}))
    assert not can_fork()


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False
    return stat.rpartition(") ")[2][0] != "Z"


def test_copies_die_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "scan.py"
    script.write_text(
        "import os, time\n"
        "from kafka_forensics.scanning.engine.processes import forked\n"
        "def task(number):\n"
        "    if number:\n"
        "        os.write(1, f'{os.getpid()}\\n'.encode())\n"
        "        time.sleep(60)\n"
        "    return b''\n"
        "list(forked(task, 3, 2))\n",
        encoding="utf-8",
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        copies = [int(process.stdout.readline()) for _ in range(2)]
        assert all(map(alive, copies))
        process.kill()
        process.wait()
        deadline = time.monotonic() + 30
        while any(map(alive, copies)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
