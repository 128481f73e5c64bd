"""Work on threads ahead of its consumer: waiting for a storage service, or computing without the GIL."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

CONCURRENT_PARTITIONS: Final = 24
"""Small partitions on storage services that a process reads at once: an S3 client has 25 connections."""
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def map_concurrently(
    work: Callable[[_Item], _Answer], items: Iterable[_Item], threads: int = CONCURRENT_PARTITIONS
) -> Generator[_Answer, None, None]:
    """Yield `work(item)` for every item, in order, computed on threads a few items ahead. Raises what `work` raises."""
    with ThreadPoolExecutor(threads, thread_name_prefix="waiting") as pool:
        ahead: deque[Future[_Answer]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, item))
                while ahead and (len(ahead) > 2 * threads or ahead[0].done()):
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
