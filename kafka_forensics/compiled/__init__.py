"""Kernels: hot loops written once, run compiled by numba for large work and interpreted for small.

Compiling costs seconds, and even loading compiled code more than the smallest scans need in all. So a kernel is an object with
both forms: `k.interpreted(...)`, `k.compiled(...)`, and `k(...)` for the form that `use_compiled` chose for this process, or for
that which is done sooner. Those few through which every batch of a large log passes have a form of their own for the interpreter
(`interpreted_by`). A kernel calls other kernels by their plain names; each form sees only its own kind. Compiled code is kept
between processes, see `machine_code`.

Kernels take and give integers, numpy arrays and bytes-like buffers, allocate nothing that a declared length asks for, check
every bound by hand, and must not overflow int64: Python's integers would not.
"""

import dis
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kafka_forensics.compiled.code_cache import CodeCache

if TYPE_CHECKING:
    from kafka_forensics.compiled.machine_code import MachineCode

Answer = TypeVar("Answer")

_ENVIRONMENT: Final = "KAFKA_FORENSICS_KERNELS"
COMPILED_ABOVE_BYTES: Final = 128 << 10
"""Work of more bytes than this is worth loading compiled kernels (some hundredths of a second)."""
COMPILING_ABOVE_BYTES: Final = 24 << 20
"""Work of more bytes than this is worth compiling them first (several seconds, once for each version of them)."""

COMPILING_SECONDS: Final = 3.0
"""What compiling one kernel takes at most, about."""

_TELLING_SECONDS: Final = 0.05
"""In a kernel, from which what is to come can be told."""
_SPARED_SECONDS: Final = 0.1
"""For which nothing is compiled even where other kernels are."""
_DIGEST_LENGTH: Final = 16

_state = {"compiled": os.environ.get(_ENVIRONMENT) == "compiled"}


class _Pace:
    """How far work is, and how long it has spent in kernels that were interpreted: both tell what is still to come.

    Times are those of a kernel called with one combination of kinds of arguments, for each of which there is code of its own.
    """

    def __init__(self, work_bytes: int, *, has_code: bool) -> None:
        self.work_bytes = work_bytes
        self.bytes_passed = 0
        self.has_code = has_code
        self._compiles = False
        self._seconds: dict[tuple[object, ...], float] = {}

    def spent(self, called: tuple[object, ...], seconds: float) -> None:
        """So much of the CPU's time went into a call that was interpreted."""
        self._seconds[called] = self._seconds.get(called, 0.0) + seconds

    def is_worth_compiling(self, called: tuple[object, ...]) -> bool:
        """Whether to interpret it to the end of the work would take longer than to compile it.

        What is to come is told by what has passed, and is at the least as much as is spent. Once something had to be compiled,
        whatever costs time is: whoever waits for the compiler waits a little more, once, and later work is as fast as it can be.
        """
        spent, times_more = self._seconds.get(called, 0.0), 1.0
        if spent > _TELLING_SECONDS and self.bytes_passed:
            times_more = max((self.work_bytes - self.bytes_passed) / self.bytes_passed, 1.0)
        if spent * times_more <= (_SPARED_SECONDS if self._compiles else COMPILING_SECONDS):
            return False
        self.has_code = self._compiles = True
        return True


_pace: dict[str, _Pace] = {}


def use_compiled(compiled: bool, work_bytes: int | None = None) -> None:
    """Choose the form that plain calls of kernels run from now on in this process; the environment variable wins.

    Given `work_bytes`, of which `passed` tells how many are done, nobody waits for the compiler unless that saves time: code that
    is kept is run, and a kernel without is interpreted until compiling it takes less time than to go on so.
    """
    forced = os.environ.get(_ENVIRONMENT)
    _state["compiled"] = {"compiled": True, "interpreted": False}.get(forced or "", compiled)
    _pace.clear()
    if work_bytes is not None and _state["compiled"] and forced != "compiled":
        kept = kernel_cache()
        _pace[""] = _Pace(work_bytes, has_code=kept is not None and bool(kept.names()))


def using_compiled() -> bool:
    """Whether plain calls of kernels run compiled code, or will: buffers must be arrays then."""
    return _state["compiled"]


def worth_threads() -> bool:
    """Whether kernels run without the interpreter's lock, so that several threads get more done than one."""
    return _state["compiled"] and all(pace.has_code for pace in _pace.values())


def passed(size_in_bytes: int) -> None:
    """So many more bytes of the work are done."""
    for pace in _pace.values():
        pace.bytes_passed += size_in_bytes


def expect(work_bytes: int) -> None:
    """So much is to be done from now on."""
    for pace in _pace.values():
        pace.work_bytes, pace.bytes_passed = work_bytes, 0


def worth_compiling(work_bytes: int) -> bool:
    """Whether so many bytes of log are read sooner by compiled kernels, their start included."""
    if work_bytes <= COMPILED_ABOVE_BYTES or work_bytes > COMPILING_ABOVE_BYTES:
        return work_bytes > COMPILING_ABOVE_BYTES
    kept = kernel_cache()
    return kept is not None and bool(kept.names())


class Kernel(Generic[Answer]):
    """A function in two forms, see the module."""

    def __init__(
        self,
        function: Callable[..., Answer],
        native: Callable[[], Callable[..., Answer]] | None = None,
        quick: Callable[..., Answer] | None = None,
        *,
        inlined: bool = False,
    ) -> None:
        assert isinstance(function, FunctionType)
        self._function = function
        self._native = native
        self._inlined = inlined
        self._quick = quick
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: object) -> Answer:
        """Run the form chosen by `use_compiled`."""
        if not _state["compiled"]:
            return self.interpreted(*arguments)
        for pace in _pace.values():
            return self._at_pace(pace, arguments)
        return self.compiled(*arguments)

    def _at_pace(self, pace: _Pace, arguments: tuple[object, ...]) -> Answer:
        """Run what code there is for such arguments; without any, interpret or compile, whichever is the sooner."""
        call, kinds = self._machine_code.ready(arguments)
        if call is not None:
            answer: Answer = call()
            return answer
        if pace.is_worth_compiling((self, kinds)):
            return self.compiled(*arguments)
        interpreted = self.interpreted
        began = time.thread_time()
        answer = interpreted(*arguments)
        pace.spent((self, kinds), time.thread_time() - began)
        return answer

    @cached_property
    def interpreted(self) -> Callable[..., Answer]:
        """The function as Python runs it, or what answers the same there sooner."""
        return self._quick or self._with_globals(lambda kernel: kernel.interpreted)

    @cached_property
    def source(self) -> Callable[..., Answer]:
        """The function as Python runs it, word by word, and all that it calls: what the other forms are held to."""
        return self._with_globals(lambda kernel: kernel.source)

    @cached_property
    def compiled(self) -> Callable[..., Answer]:
        """The function as machine code, made on first use."""
        return self._machine_code

    @cached_property
    def _machine_code(self) -> "MachineCode":
        from kafka_forensics.compiled.machine_code import MachineCode

        name = f"{self._function.__module__}.{self.__name__}".removeprefix("kafka_forensics.")
        return MachineCode(name, lambda: self.dispatcher, kernel_cache(), self.made_of())

    def made_of(self) -> str:
        """Digest of the instructions and constants that compiling puts in, as this process has them, whatever the sources say now:
        a package may be replaced while a process runs."""
        digest = hashlib.sha256()
        kernels = [self]
        for kernel in kernels:
            function = kernel._function
            digest.update(repr((function.__qualname__, function.__defaults__, kernel._inlined)).encode())
            for code in _codes(function.__code__):
                constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
                values = [function.__globals__.get(name) for name in code.co_names]
                numbers = [value if isinstance(value, int) else None for value in values]
                digest.update(repr((code.co_code, constants, code.co_names, code.co_varnames, numbers)).encode())
                kernels += [value for value in values if isinstance(value, Kernel) and value not in kernels]
        return digest.hexdigest()

    @cached_property
    def dispatcher(self) -> Callable[..., Answer]:
        """The function as numba compiles it when it is called by another; loads numba."""
        if self._native is not None:
            return self._native()
        return compile_function(self._with_globals(lambda kernel: kernel.dispatcher), inlined=self._inlined)

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


def interpreted_by(quick: Callable[..., Answer], *, inlined: bool = False) -> Callable[[Callable[..., Answer]], Kernel[Answer]]:
    """Declare a hot loop that Python need not step through: where it is not compiled `quick` answers the same.

    `inlined` puts its code where it is called, as `inlined_kernel` does.
    """

    def declare(function: Callable[..., Answer]) -> Kernel[Answer]:
        return Kernel(function, quick=quick, inlined=inlined)

    return declare


def compile_function(function: Callable[..., Answer], *, inlined: bool = False) -> Callable[..., Answer]:
    """`function` as numba's dispatcher, for other kernels to call; `inlined` puts its code where it is called."""
    import numba

    compiled: Callable[..., Answer] = numba.njit(nogil=True, error_model="numpy", forceinline=inlined)(function)
    return compiled


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of those within it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


@cache
def kernel_cache() -> CodeCache | None:
    """What is kept of compiled kernels, or None where the package's sources cannot be read: then nothing is."""
    key = _sources_digest(Path(__file__).parents[1])
    return None if key is None else CodeCache(key)


def _sources_digest(package: Path) -> str | None:
    """Of all modules of the package, its version among them: a kernel's code changes with constants wherever they are declared.

    None for a package without sources, such as one in a zip file.
    """
    digest = hashlib.sha256()
    paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(package) for name in names if name.endswith(".py"))
    try:
        for path in paths:
            with open(path, "rb", buffering=0) as file:
                source = file.read()
            digest.update(f"{os.path.relpath(path, package)}\0{len(source)}\0".encode(errors="surrogateescape") + source)
    except OSError:
        return None
    return digest.hexdigest()[:_DIGEST_LENGTH] if paths else None
