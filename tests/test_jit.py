"""Editing any engine file recompiles every caller, which Numba's own cache would not do."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from numba.core.dispatcher import Dispatcher

import cann_env.engine
from cann_env.engine import jit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(jit.__file__).parent
MODULES = [
    importlib.import_module(f"cann_env.engine.{path.stem}") for path in sorted(FOLDER.glob("[a-z]*.py"))
]
# They start a process.
PLAIN = {"warm_up", "compile_half", "_processors"}

COMPILED = not os.environ.get("NUMBA_DISABLE_JIT", "0").strip("0")
needs_compiler = pytest.mark.skipif(not COMPILED, reason="NUMBA_DISABLE_JIT leaves nothing to cache")


def functions() -> Iterator[tuple[str, Any]]:
    """Every function that an engine file defines at its top level."""
    for module in MODULES:
        if module is jit:
            continue
        for name, value in vars(module).items():
            own = inspect.unwrap(getattr(value, "py_func", value))
            if inspect.isfunction(own) and own.__module__ == module.__name__:
                yield f"{module.__name__}.{name}", value


# --- the engine ---------------------------------------------------------------------------------------


def test_the_stamp_is_a_digest_of_all_engine_files() -> None:
    digest = hashlib.sha256()
    for name in sorted(path.name for path in FOLDER.iterdir() if path.suffix == ".py"):
        digest.update(name.encode())
        digest.update((FOLDER / name).read_bytes())
    assert jit.engine_digest() == digest.hexdigest()


@needs_compiler
def test_every_kernel_carries_the_stamp() -> None:
    found = dict(functions())
    assert len(found) > 100
    for name, function in found.items():
        if name.rpartition(".")[2] not in PLAIN:
            assert isinstance(function, Dispatcher), name
            assert function._cache._cache_file._source_stamp == jit.engine_digest(), name


def test_nothing_is_compiled_past_the_guard() -> None:
    """No engine file but jit.py imports Numba, so there is no second way to compile."""
    for path in sorted(FOLDER.glob("*.py")):
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
        assert ("numba" in names) == (path.name == "jit.py"), path.name


def test_the_engine_is_one_folder() -> None:
    """The digest looks at this folder only, so kernels may not call compiled code elsewhere."""
    assert Path(cann_env.engine.__file__).parent == FOLDER
    assert not [path for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"]


# --- the guard ----------------------------------------------------------------------------------------

GUARDED = (FOLDER / "jit.py").read_text(encoding="utf-8")
UNGUARDED = "import numba\nkernel = numba.njit(cache=True)\n"


def write_package(folder: Path, guard: str) -> None:
    """A package of a caller and a callee in files of their own, and a decorator for both."""
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "jit.py").write_text(guard, encoding="utf-8")
    (folder / "callee.py").write_text(
        f"from {folder.name}.jit import kernel\n\n\n@kernel\ndef scaled(x):\n    return 2 * x\n",
        encoding="utf-8",
    )
    (folder / "caller.py").write_text(
        f"from {folder.name}.callee import scaled\nfrom {folder.name}.jit import kernel\n\n\n"
        "@kernel\ndef shifted(x):\n    return scaled(x) + 1\n",
        encoding="utf-8",
    )


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import the caller of a package afresh, as a new process would."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget(name: str) -> None:
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]

    loaded = []

    def fresh(name: str) -> Any:
        forget(name)
        loaded.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(f"{name}.caller").shifted

    yield fresh
    for name in loaded:
        forget(name)


@needs_compiler
def test_an_edited_callee_recompiles_its_caller(tmp_path: Path, load: Callable[[str], Any]) -> None:
    """2 * 10 + 1 becomes 3 * 10 + 1, though the caller's own file is as it was."""
    name = "guarded"
    write_package(tmp_path / name, GUARDED)
    assert load(name)(10) == 21
    again = load(name)
    assert again(10) == 21
    assert sum(again.stats.cache_hits.values()) == 1  # nothing has changed, nothing is compiled
    edit(tmp_path / name / "callee.py", "2 * x", "3 * x")
    edited = load(name)
    assert edited(10) == 31
    assert sum(edited.stats.cache_hits.values()) == 0


@needs_compiler
def test_without_the_guard_the_edit_goes_unnoticed(tmp_path: Path, load: Callable[[str], Any]) -> None:
    """What the guard is for: the caller still says 2 * 10 + 1."""
    write_package(tmp_path / "unguarded", UNGUARDED)
    assert load("unguarded")(10) == 21
    edit(tmp_path / "unguarded" / "callee.py", "2 * x", "3 * x")
    assert load("unguarded")(10) == 21


@needs_compiler
@pytest.mark.parametrize("change", ["new file", "deleted file", "renamed file"])
def test_any_change_of_the_folder_recompiles(change: str, tmp_path: Path, load: Callable[[str], Any]) -> None:
    name = change.replace(" ", "_")
    write_package(tmp_path / name, GUARDED)
    spare = tmp_path / name / "spare.py"
    if change != "new file":
        spare.write_text("# nothing\n", encoding="utf-8")
    load(name)(10)
    if change == "new file":
        spare.write_text("# nothing\n", encoding="utf-8")
    elif change == "deleted file":
        spare.unlink()
    else:
        spare.rename(spare.with_name("other.py"))
    changed = load(name)
    assert changed(10) == 21
    assert sum(changed.stats.cache_hits.values()) == 0


# --- the engine itself, in a copy ---------------------------------------------------------------------

ASK = """
import numpy as np
from cann_env.engine import groups
from cann_env.engine import layout as at
from cann_env.engine.bound import group_end
p = np.zeros(at.P_HEADER, np.int64)
s = np.zeros(at.S_HEADER + groups.SG_WIDTH, np.int64)
group = at.S_HEADER
s[group + groups.SG_COMMAND] = -1
s[group + groups.SG_STAGE] = groups.MOVING
s[group + groups.SG_BYTES] = 10
s[group + groups.SG_CAP] = 4
print(group_end(p, s, group), sum(group_end.stats.cache_hits.values()))
"""


@needs_compiler
@pytest.mark.slow
def test_an_edited_engine_file_recompiles_its_callers_elsewhere(tmp_path: Path) -> None:
    """10 bytes at 4 a ns take 3 ns, rounded up; once ``ceil_div`` rounds down, 2 in ``bound.py`` as well."""
    package = tmp_path / "cann_env"
    shutil.copytree(FOLDER.parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def ask() -> str:
        done = subprocess.run(
            [sys.executable, "-c", ASK],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    assert ask() == "3 0"
    assert ask() == "3 1"
    edit(package / "engine" / "arithmetic.py", "return (a + b - 1) // b", "return a // b")
    assert ask() == "2 0"


@pytest.mark.slow
def test_the_first_use_leaves_everything_on_disk(tmp_path: Path) -> None:
    """The other process has written its half where this one finds it, and a second use compiles nothing."""
    code = (
        "from cann_env.engine.choices import refresh_choices\n"
        "from cann_env.engine.clock import advance_to\n"
        "from cann_env.engine.step import step\n"
        "from cann_env.engine.warm import warm_up\n"
        "from cann_env.program import compile_graph\n"
        "from cann_env.scenario import load_scenario\n"
        "s = load_scenario('pipeline')\n"
        "compile_graph(s.graph(), s.device, s.options)\n"
        "print([sum(f.stats.cache_misses.values()) for f in (advance_to, refresh_choices, step)])\n"
    )
    seen = []
    for _ in range(2):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
        seen.append(done.stdout.strip())
    assert seen[0] in ("[1, 0, 1]", "[1, 1, 1]")  # the second half alone where there is one processor
    assert seen[1] == "[0, 0, 0]"
