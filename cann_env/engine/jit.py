"""The one decorator of the engine, and the guard against stale machine code.

Numba caches a compiled function beside its source file and looks only at *that* file to see whether the
cache is fresh: a caller in another file keeps the old code of an edited callee. All kernels of this
package therefore share one stamp, a digest of every file of the engine, in place of the file's own time;
kernels of another folder add the files of that one.
"""

from __future__ import annotations

import hashlib
import operator
import warnings
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numba
from numba.core import cgutils, llvm_bindings
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.datamodel.models import PointerModel
from numba.core.datamodel.registry import register_default
from numba.core.registry import cpu_target
from numba.core.sigutils import normalize_signature
from numba.extending import intrinsic, lower_builtin
from numba.np.arrayobj import make_array

if TYPE_CHECKING:
    from collections.abc import Callable

_passes: Any = vars(llvm_bindings)["llvm"]

Params = ParamSpec("Params")
Result = TypeVar("Result")

_FOLDER = Path(__file__).parent


@cache
def engine_digest(folder: Path = _FOLDER) -> str:
    """SHA-256 over the names and contents of all files of the engine and of a folder, in order of name."""
    digest = hashlib.sha256()
    for path in sorted({*_FOLDER.glob("*.py"), *folder.glob("*.py")}):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _EngineCache(FunctionCache):
    """A function cache whose freshness is decided by the digest of the whole engine."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        folder = Path(function.__code__.co_filename).parent
        self._cache_file._source_stamp = engine_digest(folder)


def kernel(function: Callable[Params, Result]) -> Callable[Params, Result]:
    """Compile a function of the engine: no Python objects, no GIL, cached on disk."""
    njit: Any = numba.njit  # its published type does not know all of its options
    compiled = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(function)
    if compiled is not function:  # with NUMBA_DISABLE_JIT the function stays as it is
        _attach_cache(compiled)
        compiled.get_call_template = partial(_call_template, compiled)
        compiled.compile = partial(_compile_lean, compiled, compiled.compile)
    return cast("Callable[Params, Result]", compiled)


def is_cached(compiled: Any) -> bool:
    """Whether anything of a function needs no compiling: it is compiled, or on disk, or never will be."""
    stored = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    return stored is None or bool(compiled.signatures) or bool(stored._load_index())


def _attach_cache(compiled: Any) -> None:
    try:
        compiled._cache = _EngineCache(compiled.py_func)
    except RuntimeError:  # no folder can be written, neither beside the file nor in the user's home
        _warn_without_cache()


@cache
def _warn_without_cache() -> None:
    warnings.warn(
        "cann_env: compiled code cannot be kept, so every process compiles anew; name a folder that can be "
        "written in the environment variable NUMBA_CACHE_DIR",
        RuntimeWarning,
        stacklevel=2,
    )


class ConstantPointer(numba.types.CPointer):
    """A pointer to words that never change, so that loads need not be repeated after a store elsewhere."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)  # type: ignore[no-untyped-call]
        self.name = f"constant {self.name}"


register_default(ConstantPointer)(PointerModel)


@lower_builtin(operator.getitem, ConstantPointer, numba.types.Integer)  # type: ignore[no-untyped-call, untyped-decorator]
def _load_constant(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    word = builder.load(builder.gep(args[0], [args[1]]))
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return word


def _address_of(array: Any, pointer_type: Any) -> Any:
    """Typing and code of a function that turns an array into a pointer to its first element."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        make: Any = make_array(signature.args[0])  # type: ignore[no-untyped-call]
        return make(context, builder, args[0]).data

    return pointer_type(array.dtype)(array), codegen


@intrinsic
def _pointer(typing_context: Any, array: Any) -> Any:
    return _address_of(array, numba.types.CPointer)


@intrinsic
def _constant_pointer(typing_context: Any, array: Any) -> Any:
    return _address_of(array, ConstantPointer)


def _taken_for(pointer_type: Any, words: Any) -> Any:
    """Typing and code of a function that takes what lies behind a pointer for something else."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(pointer_type))

    return pointer_type(words), codegen


@intrinsic
def _bytes(typing_context: Any, words: Any) -> Any:
    return _taken_for(numba.types.CPointer(numba.types.int8), words)  # type: ignore[no-untyped-call]


@intrinsic
def _words(typing_context: Any, parts: Any) -> Any:
    return _taken_for(numba.types.CPointer(numba.types.int64), parts)  # type: ignore[no-untyped-call]


@intrinsic
def _copy_words(typing_context: Any, target: Any, at: Any, source: Any, first: Any, count: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, at, source, first, count = args
        here, there = builder.gep(target, [at]), builder.gep(source, [first])
        cgutils.raw_memcpy(builder, here, there, count, 8)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return numba.types.void(target, at, source, first, count), codegen


def _copy_slice(target: Any, at: int, source: Any, first: int, count: int) -> None:
    target[at : at + count] = source[first : first + count]


@intrinsic
def _fetch_line(typing_context: Any, words: Any, index: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, flag = cgutils.voidptr_t, cgutils.int32_t
        llvm: Any = vars(cgutils)["ir"]
        shape = llvm.FunctionType(llvm.VoidType(), [byte, flag, flag, flag])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], shape)
        address = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
        builder.call(fetch, [address, flag(0), flag(3), flag(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return numba.types.void(words, index), codegen


def _no_line(words: Any, index: Any) -> None:
    """Without compiled code there is nothing to be gained."""


def _same(array: Any) -> Any:
    return array


def _view(kind: str, array: Any) -> Any:
    return array[: array.nbytes // 8 * 8 // array.itemsize].view(kind)


_compiled = numba.njit(_same) is not _same  # False with NUMBA_DISABLE_JIT
pointer = cast("Callable[[Any], Any]", _pointer if _compiled else _same)
"""Turns a contiguous array into a bare pointer to its elements, in compiled code; else leaves it alone.

Inside the engine images are pointers: an element is one load, where an array's would bring bounds and strides
along into every function, which is most of what there would be to compile.
"""
constant_pointer = cast("Callable[[Any], Any]", _constant_pointer if _compiled else _same)
"""The same for an array that nothing writes to while the pointer lives: a program image."""
as_bytes = cast("Callable[[Any], Any]", _bytes if _compiled else partial(_view, "int8"))
"""The words behind a pointer, taken for eight bytes each."""
as_words = cast("Callable[[Any], Any]", _words if _compiled else partial(_view, "int64"))
"""What lies behind a pointer, taken for words: to fill or copy it in fewer pieces."""
copy_words = cast("Callable[[Any, int, Any, int, int], None]", _copy_words if _compiled else _copy_slice)
"""Copy words from one pointer to another that shares none of them: where to, from where, how many."""
fetch_line = cast("Callable[[Any, int], None]", _fetch_line if _compiled else _no_line)
"""Bring the line around a word towards the processor while something else is done; changes nothing."""


_TYPES: Any = {
    "int": numba.types.int64,
    "program": ConstantPointer(numba.types.int64),
    "state": numba.types.CPointer(numba.types.int64),  # type: ignore[no-untyped-call]
    "image": numba.types.Array(numba.types.int64, 1, "C"),
    "features": numba.types.Array(numba.types.float32, 1, "C"),
    "mask": numba.types.Array(numba.types.int8, 1, "C"),
}


def compile_for(compiled: Any, kinds: tuple[str, ...]) -> None:
    """Compile a function ahead of its first call, for arguments of these kinds."""
    compiled.compile(tuple(_TYPES[kind] for kind in kinds))


class _InnerLibrary(JITCodeLibrary):
    """Code that only other code of the engine calls: kept as it is, and optimised as a part of its callers.

    Numba would optimise every function together with all it calls and turn the whole into machine code, at
    every storey of a tower of calls anew.
    """

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        module: Any = self._get_module_for_linking()  # type: ignore[no-untyped-call]
        return self.name, "bitcode", module.as_bitcode()


def _compile_lean(compiled: Any, compile_one: Callable[..., Any], signature: Any) -> Any:
    """Compile without what the engine has no use for.

    That is machine code of functions on bare pointers, which nobody calls from Python; passes that multiply
    loops, which are short; and passes against needless reference counts, as there are none.
    """
    arguments, _ = normalize_signature(signature)  # type: ignore[no-untyped-call]
    inside = any(isinstance(argument, numba.types.CPointer) for argument in arguments)
    compiled._compiler.targetoptions["no_cpython_wrapper"] = inside
    codegen: Any = cpu_target.target_context.codegen()
    library, set_env, builder = codegen._library_class, codegen.set_env, codegen._pass_builder
    codegen._library_class = _InnerLibrary if inside else JITCodeLibrary
    codegen.set_env = partial(_set_env, codegen)
    codegen._pass_builder = partial(_lean_passes, codegen)
    try:
        return compile_one(signature)
    finally:
        codegen._library_class, codegen.set_env, codegen._pass_builder = library, set_env, builder


def _lean_passes(codegen: Any, opt: int = 2, **_: Any) -> Any:
    """LLVM's passes without those that multiply loops: code that does not fit into the cache is slow."""
    options = _passes.create_pipeline_tuning_options()
    options.speed_level = opt
    options.loop_unrolling = options.loop_interleaving = False
    options.loop_vectorization = options.slp_vectorization = False
    return _passes.create_pass_builder(codegen._tm, options)


def _set_env(codegen: Any, name: str, env: Any) -> None:
    """Numba's own, but for code that has not become machine code there is nothing to be set."""
    if codegen._engine.get_global_value_address(name):
        type(codegen).set_env(codegen, name, env)


def _call_template(compiled: Any, args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
    """Numba's own, but with constants taken for plain integers: one compilation serves all of them."""
    plain = tuple(numba.types.unliteral(arg) for arg in args)  # type: ignore[no-untyped-call]
    return type(compiled).get_call_template(compiled, plain, kws)
