"""Kernels without kept code are interpreted until compiling them is sooner; clocks are ours, so that no timing decides."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_forensics import compiled
from kafka_forensics.compiled import Kernel, expect, kernel, passed, use_compiled, using_compiled, worth_threads
from kafka_forensics.compiled.code_cache import keep_in

WORK = 1 << 30


class Clock:
    """Every look at it finds so many seconds gone."""

    def __init__(self) -> None:
        self.step = 0.01
        self._now = 0.0

    def thread_time(self) -> float:
        self._now += self.step
        return self._now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Clock]:
    """A cache of its own, with nothing in it."""
    monkeypatch.delenv("KAFKA_FORENSICS_KERNELS", raising=False)
    (tmp_path / "cache").mkdir(mode=0o700)
    keep_in(str(tmp_path / "cache"))
    ours = Clock()
    monkeypatch.setattr(compiled, "time", ours)
    before = using_compiled()
    yield ours
    use_compiled(before)
    keep_in(None)


def doubled_kernel() -> Kernel[int]:
    """A kernel that no test has compiled yet, whose quick form lets itself be known."""

    def _quick(number: int) -> int:
        return 2 * number + 1000

    @compiled.interpreted_by(_quick)
    def doubled(number: int) -> int:
        """Twice the number."""
        return 2 * number

    return doubled


INTERPRETED, COMPILED = 1014, 14


def test_what_is_seldom_called_is_never_compiled(clock: Clock) -> None:
    use_compiled(compiled=True, work_bytes=WORK)
    doubled = doubled_kernel()
    assert [doubled(7) for _ in range(200)] == [INTERPRETED] * 200
    passed(WORK - 1)
    assert doubled(7) == INTERPRETED
    assert (using_compiled(), worth_threads()) == (True, False)


def test_what_would_take_longer_than_compiling_is_compiled(clock: Clock) -> None:
    use_compiled(compiled=True, work_bytes=WORK)
    doubled = doubled_kernel()
    answers = []
    for _ in range(7):
        answers.append(doubled(7))
        passed(WORK // 1000)
    assert answers == [INTERPRETED] * 6 + [COMPILED]  # 0.05 s tell, and 1000 times as much would be to come
    assert worth_threads()


def test_what_has_taken_as_long_as_compiling_is_compiled_wherever_work_is(clock: Clock) -> None:
    use_compiled(compiled=True, work_bytes=WORK)
    doubled = doubled_kernel()
    clock.step = 1.0
    assert [doubled(7) for _ in range(6)] == [INTERPRETED] * 4 + [COMPILED] * 2


def test_once_the_compiler_is_at_work_it_takes_what_costs_time_too(clock: Clock) -> None:
    use_compiled(compiled=True, work_bytes=WORK)
    first, second, third = doubled_kernel(), doubled_kernel(), doubled_kernel()
    assert [second(7) for _ in range(20)] == [INTERPRETED] * 20
    assert [third(7) for _ in range(5)] == [INTERPRETED] * 5
    clock.step = 4.0
    assert [first(7), first(7)] == [INTERPRETED, COMPILED]
    assert [second(7), third(7)] == [COMPILED, INTERPRETED]


def test_kept_code_is_run_at_once(clock: Clock) -> None:
    use_compiled(compiled=True)
    assert doubled_kernel()(7) == COMPILED
    use_compiled(compiled=True, work_bytes=WORK)
    assert worth_threads()
    assert doubled_kernel()(7) == COMPILED


def test_each_combination_of_arguments_is_judged_by_itself(clock: Clock) -> None:
    @kernel
    def first_of(numbers: tuple[int, ...]) -> int:
        """The first number."""
        return numbers[0]

    use_compiled(compiled=True, work_bytes=WORK)
    clock.step = 4.0
    assert [first_of((7,)), first_of((7,)), first_of((7, 8))] == [7, 7, 7]
    code = first_of._machine_code
    assert code.ready(((7,),))[0] is not None
    assert code.ready(((7, 8),))[0] is None


def test_work_that_begins_anew_tells_anew(clock: Clock) -> None:
    use_compiled(compiled=True, work_bytes=1)
    expect(WORK)
    doubled = doubled_kernel()
    assert [doubled(7) for _ in range(6)] == [INTERPRETED] * 6
    passed(WORK // 2)
    assert doubled(7) == INTERPRETED
    expect(WORK)
    passed(WORK // 1000)
    assert doubled(7) == COMPILED


@pytest.mark.parametrize(("word", "expected"), [("compiled", COMPILED), ("interpreted", INTERPRETED)])
def test_the_environment_wins_over_any_pace(clock: Clock, monkeypatch: pytest.MonkeyPatch, word: str, expected: int) -> None:
    monkeypatch.setenv("KAFKA_FORENSICS_KERNELS", word)
    use_compiled(compiled=word == "interpreted", work_bytes=WORK)
    assert doubled_kernel()(7) == expected
    assert worth_threads() is (word == "compiled")


def test_the_source_is_what_both_forms_are_held_to() -> None:
    doubled = doubled_kernel()
    assert (doubled.source(7), doubled.interpreted(7), doubled.compiled(7)) == (COMPILED, INTERPRETED, COMPILED)
