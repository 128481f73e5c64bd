"""Kernels: hot loops over bytes, written once, interpreted for small work and compiled by numba for large.

Loading numba costs a third of a second and compiling a kernel up to seconds, more than most scans take. So a kernel is an object
with both forms: `k.interpreted(...)`, `k.compiled(...)`, and `k(...)` for the form chosen for this process: one of the two, or
(`compile_as_needed`) interpreted until kernels have used some time, then compiled. A kernel calls other kernels by their plain
names; each form calls only its own kind. numba keeps what it compiled in a directory that `code_cache` finds safe.

Kernels take and give integers, numpy arrays and bytes-like buffers, allocate nothing that a declared length requests, check every
bound by hand, and must not overflow int64: Python's integers would not.
"""

import dis
import gc
import hashlib
import os
import pickle
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Generic, Literal, TypeVar

from kafka_forensics.storage.code_cache import NoPlaceError, mark_used, own_directory

Answer = TypeVar("Answer")
Kinds = tuple[object, ...]
"""Of the arguments of a call, what compiled code depends on; hashable."""

COMPILED_ABOVE_BYTES: Final = 128 << 10
"""Work of more bytes than this may be worth compiled kernels."""
LOADED_ABOVE_BYTES: Final = 4 << 20
"""Work of more bytes than this takes compiled kernels that the cache holds from the first call, where other code is far slower."""
COMPILE_AFTER_SECONDS: Final = 0.5
"""Kernels are compiled once interpreted ones have used so much of the CPU in this process."""
SPARED_SECONDS: Final = 0.1
"""A kernel that has used less is not compiled even then: compiling it would take longer."""
LOAD_AFTER_SECONDS: Final = 0.25
"""Kernels in the cache are loaded once interpreted ones have used so much, about what loading numba takes."""
LOAD_BEFORE_SECONDS: Final = 1.0
"""They are loaded earlier if a single call shows that the work will use so much: a call sees at most `_CALL_BYTES`."""
_CALL_BYTES: Final = 2 << 20
QUICK_CALL_SECONDS: Final = 0.03
"""Interpreted calls of this length leave libraries that run without the interpreter's lock most of the time."""

_ENVIRONMENT: Final = "KAFKA_FORENSICS_KERNELS"
_CACHE_ERRORS: Final = (
    *(OSError, EOFError, pickle.UnpicklingError),
    *(ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
)
"""What numba raises where a cached file is damaged or cannot be read or written."""
_STARTED_NS: Final = time.time_ns()
_PACKAGE: Final = Path(os.path.realpath(__file__)).parents[2]
"""Where this process has the package from; a link that led here may lead to another version by now."""
_LAYOUT: Final = 0x503
"""Of an array's flags: in C's order, in Fortran's, aligned, writable."""
_lock = threading.RLock()


@dataclass(slots=True)
class _Process:
    """How kernels run in this process, and what they have used of its CPU while they were interpreted."""

    mode: Literal["interpreted", "as needed", "compiled"]
    work_bytes: int = 0
    seconds: float = 0.0
    longest_call: float = 0.0
    has_compiled: bool = False


@dataclass(slots=True)
class _Signature(Generic[Answer]):
    """A kernel for one kind of arguments."""

    seconds: float = 0.0
    """Used by interpreted calls."""
    is_looked_up: bool = False
    """Whether the cache was searched for it."""
    form: Callable[..., Answer] | None = None
    """The compiled form, once it is there."""


_process = _Process("compiled" if os.environ.get(_ENVIRONMENT) == "compiled" else "interpreted")


def compile_as_needed(work_bytes: int) -> None:
    """From now on interpret kernels, of a large work until they have used enough; the environment variable wins.

    `work_bytes` are those of the logs to be read.
    """
    _process.work_bytes, _process.longest_call = work_bytes, 0.0
    _choose("as needed" if work_bytes > COMPILED_ABOVE_BYTES else "interpreted")


def use_compiled(compiled: bool) -> None:
    """From now on run compiled kernels from the first call, or interpreted ones only; the environment variable wins."""
    _choose("compiled" if compiled else "interpreted")


def _choose(mode: Literal["interpreted", "as needed", "compiled"]) -> None:
    forced = os.environ.get(_ENVIRONMENT)
    _process.mode = "compiled" if forced == "compiled" else "interpreted" if forced == "interpreted" else mode


def using_compiled() -> bool:
    """Whether kernels run compiled, or may: buffers must be arrays then."""
    return _process.mode != "interpreted"


def worth_threads() -> bool:
    """Whether several threads get more done than one: kernels run without the interpreter's lock, or take little time beside
    libraries that do."""
    are_quick = _process.has_compiled or _process.longest_call < QUICK_CALL_SECONDS
    return _process.mode == "compiled" or (_process.mode == "as needed" and are_quick)


def have_compiled() -> bool:
    """Whether a kernel ran compiled in this process."""
    return _process.has_compiled


class Kernel(Generic[Answer]):
    """A function in two forms, see the module."""

    def __init__(
        self, function: Callable[..., Answer], native: Callable[[], Callable[..., Answer]] | None = None, *, inlined: bool = False
    ) -> None:
        assert isinstance(function, FunctionType)
        self._function = function
        self._native = native
        self._inlined = inlined
        self._signatures: dict[Kinds, _Signature[Answer]] = {}
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: object) -> Answer:
        """Run the form chosen for this process."""
        if _process.mode == "compiled":
            return self.compiled(*arguments)
        if _process.mode == "interpreted" or self._native is not None:  # a step of others; alone it is a library's
            return self.interpreted(*arguments)
        plain, kinds = _typed(arguments)
        signature = self._signature(kinds)
        if signature.form is not None:
            return signature.form(*plain)
        interpreted = self.interpreted
        began = time.thread_time()
        answer = interpreted(*arguments)
        used = time.thread_time() - began
        with _lock:  # while another thread loads or compiles, this one would get little done, and hinder it
            if self._is_needed(kinds, signature, used):
                self._make(plain, kinds)
        return answer

    def is_ready(self) -> bool:
        """Whether the compiled form is better than other code that does the same: it is chosen for this process, kernels have used
        so much that they are compiled, or the cache holds it and the work is not small."""
        if _process.mode != "as needed":
            return _process.mode == "compiled"
        is_long = _process.seconds > COMPILE_AFTER_SECONDS
        return is_long or (_process.work_bytes > LOADED_ABOVE_BYTES and self._is_in_cache)

    @cached_property
    def _is_in_cache(self) -> bool:
        """Whether the cache holds code for any kind of arguments."""
        return self._is_cached("")

    def _signature(self, kinds: Kinds) -> _Signature[Answer]:
        return self._signatures.get(kinds) or self._signatures.setdefault(kinds, _Signature())

    def _is_needed(self, kinds: Kinds, signature: _Signature[Answer], seconds: float) -> bool:
        """Whether calls with such arguments, of which one took so long interpreted, are to be compiled from the next on."""
        signature.seconds += seconds
        _process.seconds += seconds
        _process.longest_call = max(_process.longest_call, seconds)
        needed = _process.seconds > COMPILE_AFTER_SECONDS and signature.seconds > SPARED_SECONDS
        expected = _process.longest_call * _process.work_bytes / _CALL_BYTES
        is_loadable = _process.seconds > LOAD_AFTER_SECONDS or expected > LOAD_BEFORE_SECONDS
        if is_loadable and not signature.is_looked_up:
            signature.is_looked_up = True
            needed |= self._is_cached(_digest(kinds))
        return needed

    def _is_cached(self, kinds_digest: str) -> bool:
        """Whether the cache holds code for arguments whose digest begins so; a wrong answer costs time, no more."""
        try:
            names = os.listdir(kernel_directory(make=False))
        except (NoPlaceError, OSError):
            return False
        return any(name.startswith(f"{self._cache_name}-{kinds_digest}") for name in names)

    @property
    def _cache_name(self) -> str:
        return f"{self._function.__module__}.{self._function.__qualname__}".removeprefix("kafka_forensics.")

    @cached_property
    def interpreted(self) -> Callable[..., Answer]:
        """The function as Python runs it, and all kernels that it calls."""
        return self._with_globals(lambda kernel: kernel.interpreted)

    def compiled(self, *arguments: object) -> Answer:
        """Run the compiled form, loaded from the cache if it is there. The first call with such arguments loads or compiles it."""
        plain, kinds = _typed(arguments)
        return (self._signature(kinds).form or self._make(plain, kinds))(*plain)

    def _make(self, plain: list[Any], kinds: Kinds) -> Callable[..., Answer]:
        """Load or compile the form for such arguments, in memory alone where the cache is damaged or cannot be read or written."""
        with _lock:
            signature = self._signature(kinds)
            if signature.form is None:
                collects = gc.isenabled()
                gc.disable()  # a fifth of what loading numba takes
                try:
                    signature.form = self._made(plain, kinds)
                finally:
                    if collects:
                        gc.enable()
                _process.has_compiled = True
            return signature.form

    def _made(self, plain: list[Any], kinds: Kinds) -> Callable[..., Answer]:
        import_numba()
        from numba import typeof

        signature = tuple(map(typeof, plain))
        form: Any = None
        try:
            form = self._cached(kinds)
            form.compile(signature)
        except _CACHE_ERRORS as error:
            _say_not_cached(str(error))
            if form is None or not form.signatures:  # else only writing failed
                form = self.dispatcher
                form.compile(signature)
        made: Callable[..., Answer] = form
        return made

    @cached_property
    def dispatcher(self) -> Callable[..., Answer]:
        """The function as numba compiles it when another calls it, which keeps nothing; loads numba."""
        return compile_function(self._python_function(), inlined=self._inlined) if self._native is None else self._native()

    def _cached(self, kinds: Kinds) -> Callable[..., Answer]:
        """The function as numba's dispatcher that keeps what it compiles where it may; `dispatcher` where it may not.

        Each kernel and kind of arguments has a directory of its own, which numba makes: it would mix up files that two processes
        write for two kinds at once. Raises RuntimeError where numba cannot write.
        """
        config = import_numba()
        try:
            directory = os.path.join(kernel_directory(make=True), f"{self._cache_name}-{_digest(kinds)}")
        except NoPlaceError as error:
            _say_not_cached(str(error))
            return self.dispatcher
        before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
        # numba's other places are beside the sources and below HOME, which may be evidence
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = directory, "UserProvidedCacheLocator"
        try:
            return compile_function(self._python_function(), inlined=self._inlined, cached=True)
        finally:
            config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before

    def _python_function(self) -> Callable[..., Answer]:
        """What numba compiles."""
        if self._native is not None:
            function: Callable[..., Answer] = self._native().py_func  # type: ignore[attr-defined]
            return function
        return self._with_globals(lambda kernel: kernel.dispatcher)

    def _with_globals(self, form: Callable[["Kernel[object]"], object]) -> FunctionType:
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


def kernel(function: Callable[..., Answer]) -> Kernel[Answer]:
    """Declare a hot loop (decorator)."""
    return Kernel(function)


def inlined_kernel(function: Callable[..., Answer]) -> Kernel[Answer]:
    """Declare a step of hot loops that takes less than a call of it would: its code is put where it is called (decorator)."""
    return Kernel(function, inlined=True)


def primitive(native: Callable[[], Callable[..., Answer]]) -> Callable[[Callable[..., Answer]], Kernel[Answer]]:
    """Declare a step whose compiled form is another function: `native()` gives it, imported only when needed."""

    def declare(function: Callable[..., Answer]) -> Kernel[Answer]:
        return Kernel(function, native)

    return declare


def compile_function(function: Callable[..., Answer], *, inlined: bool = False, cached: bool = False) -> Callable[..., Answer]:
    """`function` as numba's dispatcher, which runs without the interpreter's lock; `inlined` puts its code where it is called."""
    import numba

    compiled: Callable[..., Answer] = numba.njit(nogil=True, error_model="numpy", forceinline=inlined, cache=cached)(function)
    return compiled


@cache
def import_numba() -> Any:
    """Import numba without the settings in a file of the current directory, which may be evidence: they change the code it makes.

    Settings of the environment hold. Returns numba's settings.
    """
    if "numba" not in sys.modules and os.path.lexists(".numba_config.yaml"):
        before = sys.modules.get("yaml")
        sys.modules["yaml"] = None  # type: ignore[assignment]
        try:
            with warnings.catch_warnings(action="ignore"):  # that it cannot read the file without
                from numba import config
        finally:
            del sys.modules["yaml"]
            if before is not None:
                sys.modules["yaml"] = before
    from numba import config

    vars(config)["_config_fname"] = ""  # it looks again before each compilation
    return config


def _typed(arguments: tuple[Any, ...]) -> "tuple[list[Any], Kinds]":
    """Arguments with numbers as Python's integers, and what compiled code depends on of each."""
    plain: list[Any] = []
    kinds: list[object] = []
    for argument in arguments:
        if getattr(argument, "ndim", 0):
            plain.append(argument)
            kinds.append((argument.dtype.char, argument.ndim, argument.flags.num & _LAYOUT))
        elif isinstance(argument, tuple):
            items, of_items = _typed(argument)
            plain.append(tuple(items))
            kinds.append(of_items)
        else:
            plain.append(int(argument))
            kinds.append("int")
    return plain, tuple(kinds)


def kernel_directory(*, make: bool) -> str:
    """Where compiled kernels of this version are kept; made if it may be. Raises NoPlaceError."""
    key = _cache_key(_PACKAGE)
    if key is None:
        raise NoPlaceError("this package has no sources, or they have changed since this process began")
    directory = own_directory("kafka-forensics", key, make=make)
    if make:
        mark_used(directory)
    return directory


@cache
def _cache_key(package: Path) -> str | None:
    """Of all modules of the package, of what compiles them and of the CPU; None where nothing may be kept.

    numba compares the module of a kernel and the CPU alone, and mixes up what two machines write at once. Nothing is kept for a
    package without sources, such as one in a zip file, and for sources that are not those this process has loaded.
    """
    from importlib.metadata import version

    digest = hashlib.sha256("".join([sys.version, _cpu(), *map(version, ("numba", "llvmlite", "numpy"))]).encode())
    paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(package) for name in names if name.endswith(".py"))
    try:
        for path in paths:
            with open(path, "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_ctime_ns > _STARTED_NS:
                    return None
                source = file.read()
            digest.update(f"{os.path.relpath(path, package)}\0{len(source)}\0".encode(errors="surrogateescape") + source)
    except OSError:
        return None
    return digest.hexdigest()[:16] if paths else None


def _cpu() -> str:
    """What the kernel of the system says of the first CPU's model and instructions."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            lines = file.read(8192).split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU ")))


def _digest(kinds: Kinds) -> str:
    return hashlib.sha256(repr(kinds).encode()).hexdigest()[:8]


@cache
def _say_not_cached(reason: str) -> None:
    import logging  # few processes compile anything

    logging.getLogger(__name__).info("kernels are compiled in memory, for this process alone: %s", reason)
