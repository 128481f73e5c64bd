"""Work that mostly waits for a storage service: much of it is under way at once, whatever the number of cores."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from kafka_forensics.scanning.engine.work_plan import AT_ONCE

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def at_once(work: Callable[[_Item], _Answer], items: Iterable[_Item]) -> Generator[_Answer, None, None]:
    """What `work` gives for every item, in order; it runs on threads, a few items ahead. What it raises is raised here."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="waiting") as pool:
        ahead: deque[Future[_Answer]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, item))
                if len(ahead) > 2 * AT_ONCE:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
