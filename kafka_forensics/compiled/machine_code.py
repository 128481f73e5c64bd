"""Kernels as machine code: numba makes it once, and from then on it is loaded and called without numba.

Importing numba and filling its registries costs a quarter of a second in every process, as long as reading two gigabytes takes.
LLVM alone, whose object files these are, costs a tenth of that. The code is called as numba lets its functions call each other:

    int32 function(result *, exception **, arguments …)

with integers as int64, tuples item by item, and an array as its owner (two pointers, null here), number of items, item size,
address, shape and strides. The answer is 0 for a value and -2 for none; a kernel raises nothing, so any other is our mistake.
"""

import ctypes
import hashlib
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsInt, TypeAlias

import numpy as np

from kafka_forensics.compiled.code_cache import CodeCache

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine
    from numba.core.dispatcher import Dispatcher
    from numba.types import Type
    from numpy.typing import NDArray

_VALUE, _NONE = 0, -2
_NEVER_REACHED: Final = frozenset({"NRT_MemInfo_call_dtor", "NRT_Free", "NRT_decref", "NRT_incref"})
"""What numba calls for the owner of an array when that is not null."""
_DIGEST_BYTES: Final = 32
_SETTINGS: Final = ".numba_config.yaml"
"""The file with settings that numba looks for in the current directory."""

Argument: TypeAlias = "SupportsInt | NDArray[np.generic] | tuple[Argument, ...]"
Answer = int | bool | tuple[int, ...] | None
Kind = int | Literal["q"] | tuple[str, int, bool]
"""Of an argument: `q` an integer, (type code, dimensions, contiguous) an array, a number the length of the tuple that follows."""

_Byte = ctypes.c_char
_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class _Object:
    """An object file: the function's symbol in it, what it returns (`` nothing, `q`, `Q` or `?` one, `qqq` a tuple, marked by
    `several`), and the symbols it names and never calls."""

    symbol: str
    returns: str
    several: bool
    unused: list[str]
    code: bytes


class _BoundError(Exception):
    """The code names functions of this process, of numba or of Python, and would be worth nothing in another."""


class MachineCode:
    """A kernel's compiled form: called with the kernel's own arguments, made or loaded for each combination of their types."""

    def __init__(self, name: str, dispatcher: Callable[[], Any], kept: CodeCache | None, made_of: str = "") -> None:
        """`dispatcher` gives numba's form of the kernel, asked for only to make code that `kept` does not hold yet.

        `made_of` is what tells this kernel from others of that name under the same key.
        """
        self._name = name
        self._dispatcher = dispatcher
        self._kept = kept
        self._made_of = made_of
        self._forms: dict[tuple[Kind, ...], Callable[[list[int]], Answer]] = {}
        self._not_kept: set[tuple[Kind, ...]] = set()
        self._bound: Callable[..., object] | None = None
        """numba's own form, once code turned out to need more than every process has: it cannot be kept."""

    def __call__(self, *arguments: Argument) -> Any:
        """Run it without the interpreter's lock."""
        if self._bound is not None:
            return self._bound(*arguments)
        kinds: list[Kind] = []
        words: list[int] = []
        _flatten(arguments, kinds, words)
        form = self._forms.get(tuple(kinds))
        if form is None:
            try:
                with _lock:
                    form = self._forms.setdefault(tuple(kinds), self._form(tuple(kinds), len(words)))
            except _BoundError:
                self._bound = self._dispatcher()
                return self._bound(*arguments)
        return form(words)

    def ready(self, arguments: tuple[Any, ...]) -> tuple[Callable[[], Any] | None, tuple[Kind, ...]]:
        """(the call with these arguments if there is code for such, kept or made already in this process; their kinds)."""
        if self._bound is not None:
            return partial(self._bound, *arguments), ()
        kinds: list[Kind] = []
        words: list[int] = []
        _flatten(arguments, kinds, words)
        wanted = tuple(kinds)
        if wanted not in self._forms and wanted not in self._not_kept:
            with _lock:
                kept = self._load(wanted)
                if kept is None:
                    self._not_kept.add(wanted)
                else:
                    self._forms.setdefault(wanted, _callable(kept, len(words), self._name))
        form = self._forms.get(wanted)
        return None if form is None else partial(form, words), wanted

    def _form(self, kinds: tuple[Kind, ...], words: int) -> Callable[[list[int]], Answer]:
        form = self._load(kinds) or self._make(kinds)
        return _callable(form, words, self._name)

    def _file(self, kinds: tuple[Kind, ...]) -> str:
        digest = hashlib.sha256(json.dumps([_machine(), self._made_of, kinds]).encode()).hexdigest()[:16]
        return f"{self._name}-{digest}.o"

    def _load(self, kinds: tuple[Kind, ...]) -> _Object | None:
        stored = None if self._kept is None else self._kept.read(self._file(kinds))
        if stored is None:
            return None
        digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            return None
        head, code = content.split(b"\n", 1)
        return _Object(**json.loads(head), code=code)

    def _make(self, kinds: tuple[Kind, ...]) -> _Object:
        _import_numba()
        made = _compile(self._dispatcher(), kinds)
        if self._kept is not None:
            facts = {"symbol": made.symbol, "returns": made.returns, "several": made.several, "unused": made.unused}
            content = json.dumps(facts).encode() + b"\n" + made.code
            self._kept.write(self._file(kinds), hashlib.sha256(content).digest() + content)
        return made


def _flatten(arguments: tuple[Argument, ...], kinds: list[Kind], words: list[int]) -> None:
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            flags = argument.flags
            contiguous = flags.c_contiguous
            plain = contiguous and flags.writeable and argument.size
            address = (
                ctypes.addressof(_Byte.from_buffer(argument.data)) if plain else argument.__array_interface__["data"][0]
            )  # the same, four times as fast
            kinds.append((argument.dtype.char, argument.ndim, contiguous))
            words += (0, 0, argument.size, argument.itemsize, address, *argument.shape, *argument.strides)
        elif isinstance(argument, tuple):
            kinds.append(len(argument))
            _flatten(argument, kinds, words)
        else:
            kinds.append("q")
            words.append(int(argument))


def _callable(form: _Object, words: int, name: str) -> Callable[[list[int]], Answer]:
    """The function as Python calls it; it keeps no reference to its arguments, whose owner waits for the answer."""
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * words)(_link(form))
    word = ctypes.c_uint64 if form.returns == "Q" else ctypes.c_int64
    room = word * max(len(form.returns), 1)

    def call(words: list[int]) -> Answer:
        answer, exception = room(), ctypes.c_void_p()
        status = function(ctypes.addressof(answer), ctypes.addressof(exception), *words)
        if status == _VALUE and form.returns:
            return tuple(answer) if form.several else bool(answer[0] & 1) if form.returns == "?" else answer[0]
        if status not in (_VALUE, _NONE):
            raise RuntimeError(f"kernel {name} ended with {status}")
        return None

    return call


@cache
def _machine() -> str:
    """What object files must be made by and for."""
    import llvmlite
    from llvmlite import binding

    makers = f"{sys.version} {np.__version__} {version('numba')} {llvmlite.__version__}"
    return f"{makers} {binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"


@cache
def _engine() -> "ExecutionEngine":
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)


def _link(form: _Object) -> int:
    """Address of the function, loaded into this process."""
    from llvmlite import binding

    engine = _engine()
    abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    for name in form.unused:
        if binding.address_of_symbol(name) is None:
            binding.add_symbol(name, abort)
    engine.add_object_file(binding.ObjectFileRef.from_data(form.code))
    engine.finalize_object()
    return int(engine.get_function_address(form.symbol))


@cache
def _import_numba() -> None:
    """Import numba without the settings in a file of the current directory, which may be evidence: they change the code it makes.

    Those of the environment hold.
    """
    with ExitStack() as stack:
        if os.path.lexists(_SETTINGS) and "numba" not in sys.modules:
            stack.enter_context(warnings.catch_warnings(action="ignore"))  # that it cannot read the file, without:
            stack.callback(_restore_module, "yaml", sys.modules.get("yaml"))
            sys.modules["yaml"] = None  # type: ignore[assignment]
        from numba.core import config
    vars(config)["_config_fname"] = ""  # it looks again before each compilation


def _restore_module(name: str, module: ModuleType | None) -> None:
    del sys.modules[name]
    if module is not None:
        sys.modules[name] = module


def _compile(dispatcher: "Dispatcher", kinds: tuple[Kind, ...]) -> _Object:
    """Let numba compile a function for such arguments. Raises numba's errors, and _BoundError for what cannot be kept."""
    from llvmlite import binding
    from numba import types
    from numba.core import compiler
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    flags = compiler.Flags()
    flags.nrt = True
    flags.error_model = "numpy"
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    wanted = _types(iter(kinds), len(kinds))
    made = compiler.compile_extra(cpu_target.typing_context, cpu_target.target_context, dispatcher.py_func, wanted, None, flags, {})
    answer = made.signature.return_type
    several = isinstance(answer, types.BaseTuple)
    items = [types.unliteral(item) for item in (answer if several else [answer]) if item != types.none]
    codes = {types.int64: "q", types.intp: "q", types.uint64: "Q", types.boolean: "?"}
    returns = "".join(codes.get(item, "!") for item in items)
    if "!" in returns or (several and set(returns) > {"q"}):
        raise RuntimeError(f"a kernel cannot return {answer}")
    module = binding.parse_assembly(made.library.get_llvm_str())
    named = {item.name for item in [*module.functions, *module.global_variables] if item.is_declaration}
    unused = sorted(named & _NEVER_REACHED)
    foreign = [symbol for symbol in sorted(named - _NEVER_REACHED) if not symbol.startswith("llvm.") and not _in_process(symbol)]
    if foreign:
        raise _BoundError(", ".join(foreign))
    _, _, (code, _) = made.library.serialize_using_object_code()
    return _Object(made.fndesc.llvm_func_name, returns, several, unused, code)


def _in_process(symbol: str) -> bool:
    """Whether every process has such a function, as it has those of the C library."""
    return hasattr(ctypes.CDLL(None), symbol) and not symbol.startswith(("Py", "_Py", "NRT", "numba"))


def _types(kinds: Iterator[Kind], count: int) -> "tuple[Type, ...]":
    """numba's types of the next `count` arguments."""
    from numba import from_dtype, types

    described: list[Type] = []
    for kind in kinds:
        if kind == "q":
            described.append(types.int64)
        elif isinstance(kind, int):
            described.append(types.Tuple(_types(kinds, kind)))
        else:
            code, dimensions, contiguous = kind
            described.append(types.Array(from_dtype(np.dtype(code)), dimensions, "C" if contiguous else "A"))
        if len(described) == count:
            break
    return tuple(described)
