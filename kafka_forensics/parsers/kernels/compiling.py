"""Kernels: hot loops over bytes, written once, interpreted for small work and compiled by numba for large.

Loading numba costs a third of a second and compiling a kernel up to seconds, more than most scans take. So a kernel is an object
with both forms: `k.interpreted(...)`, `k.compiled(...)`, and `k(...)` for the form that this process has chosen: one of the two, or
(`compile_as_needed`) interpreted until kernels have used some time, then compiled. A kernel calls other kernels by their names, and
each form calls only the same form. numba caches what it compiles in a directory that `code_cache` finds safe.

Arguments and results of kernels are integers, numpy arrays and bytes-like buffers. Kernels allocate nothing that a declared length
requests, check every bound, and must not overflow int64: Python's integers would not.
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
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Generic, Literal, TypeVar

from msgspec import Struct

from kafka_forensics.storage.code_cache import NoCacheDirectoryError, mark_used, private_cache_directory

Answer = TypeVar("Answer")
ArgumentTypes = tuple[object, ...]
"""The types of a call's arguments as far as compiled code depends on them; hashable."""

COMPILED_ABOVE_BYTES: Final = 128 << 10
"""For work of more bytes than this, compiled kernels may be worth their cost."""
LOADED_ABOVE_BYTES: Final = 4 << 20
"""For work of more bytes than this, cached kernels are used from the first call where the alternative is much slower."""
COMPILE_AFTER_SECONDS: Final = 0.5
"""Kernels are compiled after interpreted ones have used this much CPU time in this process, if the whole work will take long."""
COMPILING_SECONDS: Final = 3.0
"""About what compiling the kernels of a scan takes: work that takes less is interpreted to its end."""
MIN_KERNEL_SECONDS: Final = 0.1
"""A kernel that has used less is still not compiled: compiling it would take longer."""
LOAD_AFTER_SECONDS: Final = 0.25
"""Cached kernels are loaded after interpreted ones have used this much, about what loading numba takes."""
LOAD_BEFORE_SECONDS: Final = 1.0
"""They are loaded earlier if one call, on at most `_CALL_BYTES`, shows that the whole work will take this long."""
_CALL_BYTES: Final = 2 << 20
QUICK_CALL_SECONDS: Final = 0.03
"""With interpreted calls of at most this length, libraries that release the interpreter's lock still run most of the time."""

_ENVIRONMENT: Final = "KAFKA_FORENSICS_KERNELS"
_CACHE_ERRORS: Final = (
    *(OSError, EOFError, pickle.UnpicklingError),
    *(ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
)
"""What numba raises if a cached file is damaged or cannot be read or written."""
_STARTED_NS: Final = time.time_ns()
_PACKAGE: Final = Path(os.path.realpath(__file__)).parents[2]
"""The directory from which this process imported the package; links are resolved, because they may change later."""
_ARRAY_FLAGS: Final = 0x503
"""Array flags: C-contiguous, Fortran-contiguous, aligned, writable."""
_lock = threading.RLock()


class _ProcessState(Struct):
    """How kernels run in this process, and the CPU time of interpreted kernels."""

    mode: Literal["interpreted", "as needed", "compiled"]
    work_bytes: int = 0
    seconds: float = 0.0
    longest_call: float = 0.0
    has_compiled: bool = False
    before_compiling: Callable[[], None] | None = None


class _Specialization(Struct, Generic[Answer]):
    """A kernel for one combination of argument types."""

    seconds: float = 0.0
    """CPU time of interpreted calls."""
    is_looked_up: bool = False
    """Whether the cache was searched for it."""
    form: Callable[..., Answer] | None = None
    """The compiled form, None before it is loaded or compiled."""


_process = _ProcessState("compiled" if os.environ.get(_ENVIRONMENT) == "compiled" else "interpreted")


def compile_as_needed(work_bytes: int) -> None:
    """Interpret kernels; for large work, of `work_bytes` of logs, only until they have used enough time. The environment wins."""
    _process.work_bytes, _process.longest_call = work_bytes, 0.0
    _choose("as needed" if work_bytes > COMPILED_ABOVE_BYTES else "interpreted")


def use_compiled(compiled: bool) -> None:
    """Run compiled kernels from the first call, or interpreted ones only; the environment variable wins."""
    _choose("compiled" if compiled else "interpreted")


def _choose(mode: Literal["interpreted", "as needed", "compiled"]) -> None:
    forced = os.environ.get(_ENVIRONMENT)
    _process.mode = "compiled" if forced == "compiled" else "interpreted" if forced == "interpreted" else mode


def using_compiled() -> bool:
    """Whether kernels run compiled, or may: then buffers must be arrays."""
    return _process.mode != "interpreted"


def gains_by_threads() -> bool:
    """Whether several threads are faster than one: kernels release the interpreter's lock, or take little time beside libraries
    that release it."""
    are_quick = _process.has_compiled or _process.longest_call < QUICK_CALL_SECONDS
    return _process.mode == "compiled" or (_process.mode == "as needed" and are_quick)


def have_compiled() -> bool:
    """Whether a compiled kernel exists in this process."""
    return _process.has_compiled


def call_before_compiling(announce: Callable[[], None] | None) -> None:
    """Have `announce` called once, before this process compiles a kernel that the cache lacks."""
    _process.before_compiling = announce


def _expected_seconds() -> float:
    """What interpreting will take for the whole work, if its calls are as large and slow as the slowest one until now."""
    return _process.longest_call * _process.work_bytes / _CALL_BYTES


def _is_long() -> bool:
    """Whether interpreting has taken some time, and the work will take, or has taken, longer than compiling."""
    return _process.seconds > COMPILE_AFTER_SECONDS and max(_process.seconds, _expected_seconds()) > COMPILING_SECONDS


class Kernel(Generic[Answer]):
    """A function in two forms, interpreted and compiled."""

    def __init__(
        self, function: Callable[..., Answer], native: Callable[[], Callable[..., Answer]] | None = None, *, inlined: bool = False
    ) -> None:
        assert isinstance(function, FunctionType)
        self._function = function
        self._native = native
        self._inlined = inlined
        self._signatures: dict[ArgumentTypes, _Specialization[Answer]] = {}
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: object) -> Answer:
        """Run the form that this process has chosen."""
        if _process.mode == "compiled":
            return self.compiled(*arguments)
        if _process.mode == "interpreted" or self._native is not None:  # a primitive called from Python: a library's function
            return self.interpreted(*arguments)
        values, types = _with_types(arguments)
        signature = self._signature(types)
        if signature.form is not None:
            return signature.form(*values)
        interpreted = self.interpreted
        began = time.thread_time()
        answer = interpreted(*arguments)
        used = time.thread_time() - began
        with _lock:  # while another thread loads or compiles, this one would only slow it down
            if self._is_needed(types, signature, used):
                self._load_or_compile(values, types)
        return answer

    def is_ready(self, *, is_long: bool = False) -> bool:
        """Whether to prefer the compiled form to other code for the same task: this process has chosen it, kernels have used enough
        time to be compiled, or the other code has (`is_long`), or the cache has it and the work is not small."""
        if _process.mode != "as needed":
            return _process.mode == "compiled"
        return is_long or _is_long() or (_process.work_bytes > LOADED_ABOVE_BYTES and self._is_in_cache)

    @cached_property
    def _is_in_cache(self) -> bool:
        """Whether the cache has code for any argument types."""
        return self._is_cached("")

    def _signature(self, types: ArgumentTypes) -> _Specialization[Answer]:
        return self._signatures.get(types) or self._signatures.setdefault(types, _Specialization())

    def _is_needed(self, types: ArgumentTypes, signature: _Specialization[Answer], seconds: float) -> bool:
        """Whether to compile for these argument types, after an interpreted call that took `seconds`."""
        signature.seconds += seconds
        _process.seconds += seconds
        _process.longest_call = max(_process.longest_call, seconds)
        needed = _is_long() and signature.seconds > MIN_KERNEL_SECONDS
        is_loadable = _process.seconds > LOAD_AFTER_SECONDS or _expected_seconds() > LOAD_BEFORE_SECONDS
        if is_loadable and not signature.is_looked_up:
            signature.is_looked_up = True
            needed |= self._is_cached(_digest(types))
        return needed

    def _is_cached(self, digest: str) -> bool:
        """Whether the cache has code for argument types whose digest begins with `digest`; a wrong answer only costs time."""
        try:
            names = os.listdir(kernel_directory(make=False))
        except (NoCacheDirectoryError, OSError):
            return False
        return any(name.startswith(f"{self._cache_name}-{digest}") for name in names)

    @property
    def _cache_name(self) -> str:
        return f"{self._function.__module__}.{self._function.__qualname__}".removeprefix("kafka_forensics.")

    @cached_property
    def interpreted(self) -> Callable[..., Answer]:
        """The function as Python runs it, together with all kernels that it calls."""
        return self._with_globals(lambda kernel: kernel.interpreted)

    def compiled(self, *arguments: object) -> Answer:
        """Run the compiled form. The first call with each combination of argument types loads it from the cache or compiles it."""
        values, types = _with_types(arguments)
        return (self._signature(types).form or self._load_or_compile(values, types))(*values)

    def _load_or_compile(self, values: list[Any], types: ArgumentTypes) -> Callable[..., Answer]:
        """The compiled form for these argument types; only in memory if the cache is damaged or cannot be read or written."""
        with _lock:
            signature = self._signature(types)
            if signature.form is None:
                announce = _process.before_compiling
                if announce is not None and not self._is_cached(_digest(types)):
                    _process.before_compiling = None
                    announce()
                collects = gc.isenabled()
                gc.disable()  # a fifth of what loading numba takes
                try:
                    signature.form = self._compile(values, types)
                finally:
                    if collects:
                        gc.enable()
                _process.has_compiled = True
            return signature.form

    def _compile(self, values: list[Any], types: ArgumentTypes) -> Callable[..., Answer]:
        import_numba()
        from numba import typeof

        signature = tuple(map(typeof, values))
        form: Any = None
        try:
            form = self._cached(types)
            form.compile(signature)
        except _CACHE_ERRORS as error:
            _log_not_cached(str(error))
            if form is None or not form.signatures:  # else only writing failed
                form = self.dispatcher
                form.compile(signature)
        made: Callable[..., Answer] = form
        return made

    @cached_property
    def dispatcher(self) -> Callable[..., Answer]:
        """The function as numba compiles it for its callers, without the cache; loads numba."""
        return compile_function(self._python_function(), inlined=self._inlined) if self._native is None else self._native()

    def _cached(self, types: ArgumentTypes) -> Callable[..., Answer]:
        """The function as a dispatcher that uses numba's cache, or `dispatcher` where there is no safe directory for it.

        Each kernel has a directory for each combination of argument types: numba would mix up files that two processes write at
        the same time. Raises RuntimeError if numba cannot write.
        """
        config = import_numba()
        try:
            directory = os.path.join(kernel_directory(make=True), f"{self._cache_name}-{_digest(types)}")
        except NoCacheDirectoryError as error:
            _log_not_cached(str(error))
            return self.dispatcher
        before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
        # numba's default directories are beside the sources and below HOME, which may be evidence
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = directory, "UserProvidedCacheLocator"
        try:
            return compile_function(self._python_function(), inlined=self._inlined, cached=True)
        finally:
            config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before

    def _python_function(self) -> Callable[..., Answer]:
        if self._native is not None:
            function: Callable[..., Answer] = self._native().py_func  # type: ignore[attr-defined]
            return function
        return self._with_globals(lambda kernel: kernel.dispatcher)

    def _with_globals(self, form: Callable[["Kernel[object]"], object]) -> FunctionType:
        """A copy of the function in whose globals each kernel is replaced by one of its forms."""
        function = self._function
        namespace = dict(function.__globals__)
        loaded = {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}
        for name in loaded:
            value = namespace.get(name)
            if isinstance(value, Kernel):
                namespace[name] = form(value)
        copy = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
        copy.__module__ = function.__module__
        copy.__qualname__ = function.__qualname__
        return copy


def kernel(function: Callable[..., Answer]) -> Kernel[Answer]:
    """Declare a hot loop (decorator)."""
    return Kernel(function)


def inlined_kernel(function: Callable[..., Answer]) -> Kernel[Answer]:
    """Declare a step of hot loops that is cheaper than a call: compiled code inlines it (decorator)."""
    return Kernel(function, inlined=True)


def primitive(module: str) -> Callable[[Callable[..., Answer]], Kernel[Answer]]:
    """Declare a step whose compiled form is the function of the same name in `module`, imported only when needed (decorator)."""

    def declare(function: Callable[..., Answer]) -> Kernel[Answer]:
        return Kernel(function, lambda: getattr(import_module(module), function.__name__))

    return declare


def compile_function(function: Callable[..., Answer], *, inlined: bool = False, cached: bool = False) -> Callable[..., Answer]:
    """`function` as numba's dispatcher, which releases the interpreter's lock; compiled callers inline it if `inlined`."""
    import numba

    compiled: Callable[..., Answer] = numba.njit(nogil=True, error_model="numpy", forceinline=inlined, cache=cached)(function)
    return compiled


@cache
def import_numba() -> Any:
    """Import numba without its settings file in the current directory, which may be evidence and would change the code.

    Settings in the environment apply. Returns numba's settings.
    """
    if "numba" not in sys.modules and os.path.lexists(".numba_config.yaml"):
        before = sys.modules.get("yaml")
        sys.modules["yaml"] = None  # type: ignore[assignment]
        try:
            with warnings.catch_warnings(action="ignore"):  # numba warns that it cannot read the file
                from numba import config
        finally:
            del sys.modules["yaml"]
            if before is not None:
                sys.modules["yaml"] = before
    from numba import config

    vars(config)["_config_fname"] = ""  # it looks again before each compilation
    return config


def _with_types(arguments: tuple[Any, ...]) -> "tuple[list[Any], ArgumentTypes]":
    """Arguments with numbers as Python's integers, and the type of each."""
    values: list[Any] = []
    types: list[object] = []
    for argument in arguments:
        if getattr(argument, "ndim", 0):
            values.append(argument)
            types.append((argument.dtype.char, argument.ndim, argument.flags.num & _ARRAY_FLAGS))
        elif isinstance(argument, tuple):
            items, item_types = _with_types(argument)
            values.append(tuple(items))
            types.append(item_types)
        else:
            values.append(int(argument))
            types.append("int")
    return values, tuple(types)


def kernel_directory(*, make: bool) -> str:
    """The cache directory for compiled kernels of this version, created if `make`. Raises NoCacheDirectoryError."""
    key = _cache_key(_PACKAGE)
    if key is None:
        raise NoCacheDirectoryError("this package has no sources, or they have changed since this process started")
    directory = private_cache_directory("kafka-forensics", key, make=make)
    if make:
        mark_used(directory)
    return directory


@cache
def _cache_key(package: Path) -> str | None:
    """Hash of all modules of the package, the compiler and the CPU; None if nothing may be cached.

    numba compares only the module of a kernel and the CPU, and mixes up files that two machines write at the same time. A package
    without sources, such as one in a zip file, is not cached, nor are sources that changed after this process started.
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
    """Model and instruction set of the first CPU, as Linux reports them."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            lines = file.read(8192).split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU ")))


def _digest(types: ArgumentTypes) -> str:
    return hashlib.sha256(repr(types).encode()).hexdigest()[:8]


@cache
def _log_not_cached(reason: str) -> None:
    import logging  # few processes compile anything

    logging.getLogger(__name__).info("kernels are compiled in memory, only for this process: %s", reason)
