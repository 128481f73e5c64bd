"""Kernels that are not kept yet are compiled by a copy of this process, while this one goes on with them as Python runs them.

Who lists or searches wants the first line at once, and compiling takes seconds; who wanted no more than that must not wait for it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafka_forensics.compiled import kernel_cache, use_compiled, using_compiled
from kafka_forensics.engine.processes import can_fork, copy_at_work
from kafka_forensics.storage.local import LocalSource

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

    from kafka_forensics.storage.source import ByteSource

Look = Callable[[], None]
"""To be called where kernels may change their form: where no buffer is held that was made for one of them."""


@contextmanager
def compiled_meanwhile(needed: Sequence[str], rehearse: Callable[[], None], source: "ByteSource | None") -> Iterator[Look]:
    """Where compiled kernels are chosen, but the code of those `needed` is not kept: the block begins with them interpreted.

    `rehearse` does some of the same work with what lies in `source`, so that all it takes is compiled, in a copy of this process,
    which ends with the block; sources that are not of this machine no copy can read. The kernels `needed` are named as their files
    begin. Once all is kept, `Look` chooses compiled kernels again, and so does the end.
    """
    waits = isinstance(source, LocalSource) and using_compiled() and not _are_kept(needed)
    copy = _copy(rehearse) if waits else None
    if copy is None:
        yield _nothing
        return

    def look() -> None:
        if not using_compiled() and not copy.is_alive():
            use_compiled(compiled=True)

    use_compiled(compiled=False)
    try:
        yield look
    finally:
        copy.kill()
        copy.join()
        use_compiled(compiled=True)


def _nothing() -> None:
    """Kernels are what they are."""


def _are_kept(needed: Sequence[str]) -> bool:
    """Whether the code is there, or can be kept nowhere: then no copy can make it."""
    cache = kernel_cache()
    if cache is None or not cache.can_keep():
        return True
    names = cache.names()
    return all(any(name.startswith(f"{kernel}-") for name in names) for kernel in needed)


def _copy(rehearse: Callable[[], None]) -> "ForkProcess | None":
    """A copy at work; None where there can be none."""
    use_compiled(compiled=False)
    is_forced = using_compiled()
    use_compiled(compiled=True)
    if is_forced or not can_fork():
        return None
    return copy_at_work(_rehearse, rehearse)


def _rehearse(rehearse: Callable[[], None]) -> None:
    """In the copy, of whose work nothing is told, for the process it is of does the same, whatever stream it holds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    use_compiled(compiled=True)
    rehearse()
