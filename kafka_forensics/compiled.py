"""Kernels: hot loops written once, run compiled by numba for large work and interpreted for small.

Compiling costs seconds, and even loading compiled code more than the smallest scans need in all. So a kernel is an object with
both forms: `k.interpreted(...)`, `k.compiled(...)`, and `k(...)` for the form that `use_compiled` chose for this process. A
kernel calls other kernels by their plain names; each form sees only its own kind. Compiled code is kept between processes, see
`machine_code`.

Kernels take and give integers, numpy arrays and bytes-like buffers, allocate nothing that a declared length asks for, check
every bound by hand, and must not overflow int64: Python's integers would not.
"""

import dis
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, Final

_ENVIRONMENT: Final = "KAFKA_FORENSICS_KERNELS"
COMPILED_ABOVE_BYTES: Final = 128 << 10
"""Work of more bytes than this is worth loading compiled kernels (some hundredths of a second)."""
COMPILING_ABOVE_BYTES: Final = 24 << 20
"""Work of more bytes than this is worth compiling them first (several seconds, once for each version of them)."""

_DIGEST_LENGTH: Final = 16
_KEPT_SECONDS: Final = 30 * 24 * 3600

_state = {"compiled": os.environ.get(_ENVIRONMENT) == "compiled"}


def use_compiled(compiled: bool) -> None:
    """Choose the form that plain calls of kernels run from now on in this process; the environment variable wins."""
    forced = os.environ.get(_ENVIRONMENT)
    _state["compiled"] = {"compiled": True, "interpreted": False}.get(forced or "", compiled)


def using_compiled() -> bool:
    """Whether plain calls of kernels run compiled code."""
    return _state["compiled"]


def worth_compiling(work_bytes: int) -> bool:
    """Whether so many bytes of log are read sooner by compiled kernels, their start included."""
    directory = kernel_cache()
    warm = directory is not None and any(Path(directory).glob("*.o"))
    return work_bytes > (COMPILED_ABOVE_BYTES if warm else COMPILING_ABOVE_BYTES)


class Kernel:
    """A function in two forms, see the module."""

    def __init__(self, function: Callable[..., Any], native: Callable[[], Any] | None = None) -> None:
        assert isinstance(function, FunctionType)
        self._function = function
        self._native = native
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Run the form chosen by `use_compiled`."""
        return self.compiled(*arguments) if _state["compiled"] else self.interpreted(*arguments)

    @cached_property
    def interpreted(self) -> Callable[..., Any]:
        """The function as Python runs it."""
        return self._with_globals(lambda kernel: kernel.interpreted)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """The function as machine code, made on first use."""
        from kafka_forensics.machine_code import MachineCode

        name = f"{self._function.__module__}.{self.__name__}".removeprefix("kafka_forensics.")
        return MachineCode(name, lambda: self.dispatcher, kernel_cache)

    @cached_property
    def dispatcher(self) -> Any:
        """The function as numba compiles it when it is called by another; loads numba."""
        if self._native is not None:
            return self._native()
        return compile_function(self._with_globals(lambda kernel: kernel.dispatcher))

    def _with_globals(self, form: Callable[["Kernel"], Any]) -> FunctionType:
        """A twin of the function whose global kernels are replaced by one of their forms."""
        function = self._function
        own = dict(function.__globals__)
        loaded = {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}
        for name in loaded:
            value = own.get(name)
            if isinstance(value, Kernel):
                own[name] = form(value)
        twin = FunctionType(function.__code__, own, function.__name__, function.__defaults__, function.__closure__)
        twin.__module__ = function.__module__
        twin.__qualname__ = function.__qualname__
        return twin


def kernel(function: Callable[..., Any]) -> Kernel:
    """Declare a hot loop (decorator)."""
    return Kernel(function)


def primitive(native: Callable[[], Any]) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a step whose compiled form is another function: `native()` gives it, imported only when needed."""

    def declare(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, native)

    return declare


def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as numba's dispatcher, for other kernels to call."""
    import numba

    compiled: Callable[..., Any] = numba.njit(nogil=True, error_model="numpy")(function)
    return compiled


@cache
def kernel_cache() -> str | None:
    """A private directory for compiled kernels, or None: then they are compiled in each process anew.

    Named after the kernels' sources, because a kernel's code changes with that of any other it calls.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(home) / "kafka-forensics" / _sources_digest()
    try:
        if not directory.is_dir():
            _forget_old(directory.parent)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = directory.lstat()
    except (OSError, RuntimeError):
        return None
    private = stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and stat.S_IMODE(info.st_mode) & 0o077 == 0
    return str(directory) if private and os.access(directory, os.W_OK) else None


def _forget_old(caches: Path) -> None:
    """Remove what other versions of the kernels kept and have not touched for a month."""
    for directory in caches.glob("[0-9a-f]" * _DIGEST_LENGTH):
        if directory.stat().st_mtime < time.time() - _KEPT_SECONDS:
            shutil.rmtree(directory, ignore_errors=True)


def _sources_digest() -> str:
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(
        [
            *package.glob("parsers/kernels/*.py"),
            *package.glob("analysis/*.py"),
            *package.glob("simulation/*.py"),
            package / "compiled.py",
            package / "machine_code.py",
        ]
    ):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:_DIGEST_LENGTH]
