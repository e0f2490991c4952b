"""Scheduling problems from the literature, with what is known of their optima, from files and archives."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path, PurePosixPath

from cann_env.units import InputError
from cann_env.workloads.project import Optimum, PosedProblem, Project, pose
from cann_env.workloads.project_files import (
    read_job_shop,
    read_job_shop_json,
    read_optima,
    read_rcp,
    read_sm,
)

PROBLEM_ENDINGS = (".sm", ".rcp", ".jsp", ".json", ".txt")
"""Endings of the files that hold a problem."""

_OPTIMA = "optimum.csv"
_ARCHIVE = re.compile(r"(?P<archive>.+\.(?:tar\.gz|tgz|tar|zip))(?::(?P<member>.+))?", re.IGNORECASE)
_PART = re.compile(r"(?P<file>.+\.json):(?P<part>[^/\\]+)", re.IGNORECASE)
_GZIP = b"\x1f\x8b"
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,  # what zipfile raises for a member with a password, or of an unknown compression
)
_FORMATS = {".sm": read_sm, ".rcp": read_rcp, ".jsp": read_job_shop, ".txt": read_job_shop}


def is_problem(name: str) -> bool:
    """Whether a name has the form of a problem's, such as ``j301_1.sm`` or ``j30.tar.gz:j301_1.sm``."""
    return bool(_ARCHIVE.fullmatch(name) or _PART.fullmatch(name)) or name.lower().endswith(PROBLEM_ENDINGS)


def from_psplib(name: str | Path, optimum: Optimum | None = None) -> PosedProblem:
    """Read a problem and make of it what the engine runs; see :func:`~cann_env.workloads.project.pose`.

    Args:
        name: Path of a file, ``.sm`` (PSPLIB single mode), ``.rcp`` (Patterson), ``.jsp`` or ``.txt`` (job
            shop) or ``.json`` (job shops; ``<path>:<name>`` where it holds several). Of a member of a
            ``.tar.gz``, ``.tar`` or ``.zip`` write ``<archive>:<member>``, with or without its folder.
        optimum: What is known of the least makespan. None to look it up in the file itself, then in a file
            ``optimum.csv`` beside it, see :func:`~cann_env.workloads.project_files.read_optima`.

    Raises:
        InputError: There is no such file or member, or it is malformed; names the file, the line, and what
            would be right.
    """
    text, source, beside = _open(str(name))
    project, stated = _parse(text, source, str(name))
    if optimum is None:
        optimum = stated or _look_up(source, beside)
    try:
        return pose(project, optimum)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def problem_names(archive: str | Path) -> tuple[str, ...]:
    """Names of the problems in an archive, as :func:`from_psplib` takes them, numbers in order of size.

    Raises:
        InputError: There is no such archive.
    """
    members = [name for name in _members(str(archive)) if name.lower().endswith(PROBLEM_ENDINGS)]
    return tuple(f"{archive}:{PurePosixPath(name).name}" for name in sorted(members, key=_by_number))


def _by_number(name: str) -> list[tuple[int, str]]:
    words = re.split(r"(\d+)", name.rsplit(".", 1)[0])
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words if word]


def _parse(text: str, source: str, name: str) -> tuple[Project, Optimum | None]:
    part = _PART.fullmatch(name)
    if part or source.lower().endswith(".json"):
        project, known = read_job_shop_json(text, source, part["part"] if part else "")
        return project, None if known == Optimum() else known
    reader = next((read for ending, read in _FORMATS.items() if source.lower().endswith(ending)), None)
    if reader is None:
        raise InputError(
            f"problem {source!r} is of no known format; write one of {', '.join(PROBLEM_ENDINGS)}"
        )
    return reader(text, source), None


def _look_up(source: str, beside: str | None) -> Optimum | None:
    if beside is None:
        return None
    optima = read_optima(beside, f"{_OPTIMA} beside {source}")
    return optima.get(re.split(r"[/\\:]", source)[-1])


def _open(name: str) -> tuple[str, str, str | None]:
    """Content of a problem, what it is called in messages, and the table of optima that lies beside it."""
    if found := _ARCHIVE.fullmatch(name):
        return _from_archive(found["archive"], found["member"])
    part = _PART.fullmatch(name)
    path = Path(part["file"] if part else name)
    table = path.parent / _OPTIMA
    text = _read(path)
    return text, str(path), _read(table) if table.is_file() else None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:  # a path may hold a byte that none can
        raise InputError(f"problem {str(path)!r} cannot be read: {error}") from error


def _from_archive(archive: str, member: str | None) -> tuple[str, str, str | None]:
    members = _members(archive)
    wanted = member or ""
    part = _PART.fullmatch(wanted)
    wanted = part["file"] if part else wanted
    paths = [name for name in members if name == wanted or PurePosixPath(name).name == wanted]
    if not paths:
        some = ", ".join(PurePosixPath(name).name for name in sorted(members, key=_by_number)[:4])
        raise InputError(
            f"archive {archive!r} has no member {wanted!r}; write {archive}:<member>, such as {some}"
        )
    table = str(PurePosixPath(paths[0]).with_name(_OPTIMA))
    beside = _decoded(archive, table) if table in members else None
    return _decoded(archive, paths[0]), f"{archive}:{paths[0]}", beside


def _decoded(archive: str, name: str) -> str:
    try:
        return _members(archive)[name].decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{archive}:{name} is not text: {error}") from error


def _members(archive: str) -> dict[str, bytes]:
    """Contents of the problems and tables in an archive, by name."""
    try:
        stat = Path(archive).stat()
        return _unpacked(archive, stat.st_mtime_ns, stat.st_size)
    except _UNREADABLE as error:
        raise InputError(f"archive {archive!r} cannot be read: {error}") from error


@lru_cache(maxsize=2)  # a set is read problem by problem, and to find one takes unpacking all before it
def _unpacked(archive: str, _mtime_ns: int, _size: int) -> dict[str, bytes]:
    endings = (*PROBLEM_ENDINGS, ".csv")
    if archive.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as file:
            return {name: file.read(name) for name in file.namelist() if name.lower().endswith(endings)}
    data = Path(archive).read_bytes()
    if data.startswith(_GZIP):
        data = gzip.decompress(data)  # as a whole: only its end tells whether all of it arrived
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = (info for info in tar if info.isfile() and info.name.lower().endswith(endings))
        found = ((info.name, tar.extractfile(info)) for info in files)
        return {name: content.read() for name, content in found if content is not None}
