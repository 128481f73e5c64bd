"""How the one file of `make bundle-tool` unpacks its wheels and runs what is in them; there it is the module `unpack`.

The libraries are code, so they are kept by the rules for machine code (`compiled.code_cache`, which lies beside this module in the
file): in a directory that nobody but its user can change all the way from the root, and that is no input, nor inside or above one.
Where there is no such place they are unpacked into a temporary directory, which another process removes when this one is over.

What was unpacked before is used if it is exactly what the file holds: the same directories and files, each this user's alone,
regular, and of the size and the time that unpacking gave it. Digests are taken of the wheels when they are unpacked, and not of the
files at every start: that would read 400 MB through the page cache that a broker lives by, to learn what this user did meanwhile.
"""

import errno
import hashlib
import io
import json
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from kafka_forensics.compiled.code_cache import NoPlaceError, is_own, keep_in, keep_out_of, own_directory, safe_path
else:
    from code_cache import NoPlaceError, is_own, keep_in, keep_out_of, own_directory, safe_path

FOLDER: Final = "kafka-forensics-tool"
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
TIME: Final = 315_532_800
"""Of every unpacked file, in seconds: 1980, where zip files begin."""
_KEY_LENGTH: Final = 16
_KEPT_SECONDS: Final = 30 * 24 * 3600
_UNFINISHED_SECONDS: Final = 24 * 3600
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_EXECUTION: Final = getattr(os, "ST_NOEXEC", 0)
_PARTITION: Final = re.compile(r".+-[0-9]+")
_CHUNK: Final = 1 << 20


class Contents:
    """What the file holds, and the key under which it is kept."""

    def __init__(self, archive: str, text: bytes) -> None:
        read = json.loads(text)
        self.archive = archive
        self.wheels: dict[str, str] = read["wheels"]
        self.files: dict[str, int] = read["files"]
        self.directories: set[str] = set()
        for path in self.files:
            above = path.rpartition("/")[0]
            while above and above not in self.directories:
                self.directories.add(above)
                above = above.rpartition("/")[0]
        self.key = hashlib.sha256(text).hexdigest()[:_KEY_LENGTH]


class BrokenFileError(Exception):
    """The file is not as it was made."""


def run(archive: str, text: bytes) -> NoReturn:
    """Run the command line of this process by what `archive` holds, of which `text` is the list."""
    contents = Contents(archive, text)
    arguments = sys.argv[1:]
    for path in _inputs(arguments):
        keep_out_of(path)
    keep_in(_cache_dir(arguments))
    try:
        place = _place(contents, verbose="-v" in arguments or "--verbose" in arguments)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenFileError as error:
        _end(f"{_printable(archive)}: {error}", "copy the file here again, and compare its SHA-256")
    except (NoPlaceError, OSError) as error:
        hint = f"set XDG_CACHE_HOME to a directory that is yours alone, with {sum(contents.files.values()) // 1_000_000} MB free"
        _end(f"the libraries in this file cannot be unpacked: {_reason(error)}", hint)
    _import_from(place)
    from kafka_forensics.__main__ import run as run_command

    run_command()


def _place(contents: Contents, *, verbose: bool) -> str:
    """The directory with the unpacked libraries. Raises NoPlaceError, OSError and BrokenFileError."""
    try:
        return _kept(contents)
    except (NoPlaceError, OSError) as error:
        if verbose:
            sys.stderr.write(f"the libraries are unpacked for this run alone and removed at its end: {_reason(error)}\n")
    return _temporary(contents)


def _kept(contents: Contents) -> str:
    """Where the libraries are kept, unpacked if they are not. Raises as `_place`."""
    with own_directory(FOLDER) as (parent, path):
        _require_execution(path)
        if not _is_whole(parent, contents.key, contents):
            _forget_old(path)
            _unpack_beside(parent, path, contents)
        with suppress(OSError):  # a disk that has become read-only
            os.utime(contents.key, dir_fd=parent)
        return os.path.join(path, contents.key)


def _unpack_beside(parent: int, path: str, contents: Contents) -> None:
    """Unpack under another name, and give it its own once it is whole. What has that name and is not whole goes away."""
    unfinished = _unfinished(contents.key)
    os.mkdir(unfinished, 0o700, dir_fd=parent)
    try:
        _unpack(contents, os.path.join(path, unfinished))
        if _renamed(parent, unfinished, contents.key):
            return
        if _is_whole(parent, contents.key, contents):  # another process was sooner
            return
        spoilt = _unfinished(contents.key)
        with suppress(FileNotFoundError):
            os.rename(contents.key, spoilt, src_dir_fd=parent, dst_dir_fd=parent)
            _remove(os.path.join(path, spoilt))
        if not _renamed(parent, unfinished, contents.key) and not _is_whole(parent, contents.key, contents):
            raise NoPlaceError(f"{path}/{contents.key} is changed meanwhile")
    finally:
        _remove(os.path.join(path, unfinished))


def _renamed(parent: int, name: str, to: str) -> bool:
    """Whether a directory could be given a name, which nothing else had."""
    try:
        os.rename(name, to, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _unpack(contents: Contents, place: str) -> None:
    """Unpack all wheels into a directory that is there, empty and this user's. Raises BrokenFileError, and OSError."""
    for directory in sorted(contents.directories):
        os.mkdir(os.path.join(place, directory), 0o700)
    unpacked = set()
    try:
        with zipfile.ZipFile(contents.archive) as archive:
            for name, digest in contents.wheels.items():
                wheel = archive.read(name)
                if hashlib.sha256(wheel).hexdigest() != digest:
                    raise BrokenFileError(f"{name} is damaged")
                with zipfile.ZipFile(io.BytesIO(wheel)) as opened:
                    for entry in opened.infolist():
                        unpacked.add(entry.filename)
                        _write(os.path.join(place, entry.filename), opened, entry, contents)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise BrokenFileError("it is damaged") from error
    if unpacked != set(contents.files):
        raise BrokenFileError("it is not whole")


def _write(path: str, wheel: zipfile.ZipFile, entry: zipfile.ZipInfo, contents: Contents) -> None:
    if contents.files.get(entry.filename) != entry.file_size:  # so the name is among those whose directories were made
        raise BrokenFileError("it holds what it does not list")
    descriptor = os.open(path, _CREATE, 0o600)
    with open(descriptor, "wb") as file, wheel.open(entry) as packed:
        shutil.copyfileobj(packed, file, _CHUNK)
        file.flush()
        os.utime(descriptor, (TIME, TIME))


def _is_whole(parent: int, key: str, contents: Contents) -> bool:
    """Whether what was unpacked is there as it was unpacked, see the module."""
    try:
        descriptor = os.open(key, _OPEN_DIRECTORY, dir_fd=parent)
    except OSError:
        return False
    found: set[str] = set()
    try:
        return _is_as_listed(descriptor, "", contents, found) and len(found) == len(contents.files) + len(contents.directories)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_as_listed(directory: int, prefix: str, contents: Contents, found: set[str]) -> bool:
    """Whether a directory, and all in it, is this user's alone and listed; what is in it is added to `found`."""
    if not is_own(os.fstat(directory)):
        return False
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            info = entry.stat(follow_symlinks=False)
            found.add(name)
            if stat.S_ISDIR(info.st_mode) and name in contents.directories:
                inner = os.open(entry.name, _OPEN_DIRECTORY, dir_fd=directory)
                try:
                    if not _is_as_listed(inner, f"{name}/", contents, found):
                        return False
                finally:
                    os.close(inner)
            elif not (
                stat.S_ISREG(info.st_mode)
                and is_own(info)
                and info.st_size == contents.files.get(name)
                and info.st_mtime_ns == TIME * 1_000_000_000
            ):
                return False
    return True


def _temporary(contents: Contents) -> str:
    """A directory for this process alone, with the libraries in it. Raises NoPlaceError, which names every place that will not do.

    `/tmp` comes last: it is often a piece of memory.
    """
    reasons = []
    for folder in dict.fromkeys((os.environ.get("TMPDIR", ""), "/var/tmp", "/tmp")):  # noqa: S108 - judged by safe_path
        if not os.path.isabs(folder):
            continue
        try:
            parent = safe_path(folder)
            _require_execution(parent)
            place = tempfile.mkdtemp(prefix=f"{FOLDER}-", dir=parent)
            _remove_when_over(place)
            _unpack(contents, place)
        except (NoPlaceError, OSError) as error:
            reasons.append(_reason(error))
        else:
            return place
    raise NoPlaceError("; ".join(dict.fromkeys(reasons)))


def _remove_when_over(place: str) -> None:
    """Remove a directory once this process and all its copies are over, however they end.

    Another process waits for the end of a pipe that nobody writes to. It is of a session of its own, so what ends a terminal's
    processes does not end it, and no child of this one, whose children are waited for.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(reading)
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(writing)
    os.read(reading, 1)
    _remove(place)
    os._exit(0)


def _require_execution(path: str) -> None:
    """Raise NoPlaceError where a disk is mounted so that no library can be loaded from it."""
    if os.statvfs(path).f_flag & _NO_EXECUTION:
        raise NoPlaceError(f"{path} is mounted noexec")


def _forget_old(path: str) -> None:
    """Remove what has not been run for a month, and what was not unpacked to its end since yesterday."""
    for entry in os.scandir(path):
        with suppress(OSError):
            seconds = _UNFINISHED_SECONDS if entry.name.endswith(".part") else _KEPT_SECONDS
            if entry.stat(follow_symlinks=False).st_mtime < time.time() - seconds:
                _remove(entry.path)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            os.unlink(path)


def _unfinished(key: str) -> str:
    return f"{key}.{os.urandom(8).hex()}.part"


def _inputs(arguments: list[str]) -> list[str]:
    """What is named on the command line and may be evidence: words, what is behind a `=` in them, what is around a partition."""
    words = [word for before, word in pairwise(["", *arguments]) if before != "--cache-dir"]
    words = [word for word in words if not word.startswith("--cache-dir=")]
    named = [part for word in words for part in (word, word.partition("=")[2]) if part and "\0" not in part]
    directories = [os.path.realpath(path) for path in named if os.path.isdir(path)]
    return [*named, *(os.path.dirname(path) for path in directories if _PARTITION.fullmatch(os.path.basename(path)))]


def _cache_dir(arguments: list[str]) -> str | None:
    """What --cache-dir says; None where it is not given, or no absolute path, of which the command will complain."""
    for word, behind in pairwise([*arguments, ""]):
        value = behind if word == "--cache-dir" else word.removeprefix("--cache-dir=") if word.startswith("--cache-dir=") else ""
        if os.path.isabs(value):
            return value
    return None


def _import_from(place: str) -> None:
    """Import from the libraries and Python's own, and nothing from elsewhere; write nothing beside them."""
    own = os.path.dirname(os.__file__)
    zipped = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    of_python = [path for path in sys.path if path == own or os.path.basename(path) in ("lib-dynload", zipped)]
    sys.path[:] = [place, *of_python]
    sys.dont_write_bytecode = True


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        path = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return _printable(path + (error.strerror or str(error)).lower())
    return _printable(str(error))


def _printable(text: str) -> str:
    """Safe for a terminal."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _end(problem: str, hint: str) -> NoReturn:
    sys.stderr.write(f"error: {problem}\nhint: {hint}\n")
    sys.exit(EXIT_USAGE)
