"""Where symbolic links lead: followed by us, name by name from a held directory, to what was given and nowhere else.

The system follows no link for us. A link leads on if what it names lies below a path that was given, or is one; paths are told
apart by device and inode of directories that are held open on the way, never by their text. Beyond what was given, directories
are passed without being read, and only on the file systems of the paths given, so that no link can wake up a mount.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

MAX_LINKS: Final = 8
"""Links on the way to one file."""
MAX_DEPTH: Final = 128
"""Directories held on the way to one file."""
OUTSIDE: Final = "it leads out of what was given"
CIRCLE: Final = "it leads in a circle"
TOO_MANY: Final = f"more than {MAX_LINKS} links follow each other"
TOO_DEEP: Final = f"it leads more than {MAX_DEPTH} directories deep"
DANGLING: Final = "nothing is where it leads"

Identity = tuple[int, int]
"""(device, inode)."""

_PASS_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For a directory that is only passed through; with O_PATH it need not be readable."""


class LinkError(Exception):
    """A link that is not followed, and why; `info` is what is at the path itself, None where the link is on the way to it."""

    def __init__(self, reason: str, info: os.stat_result | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.info = info


class Roots:
    """The paths that were given, by device and inode."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(dict.fromkeys(os.path.realpath(path) for path in paths))
        self._typed = tuple(dict.fromkeys(map(os.path.abspath, paths)))
        self._known: dict[Identity, str] = {}
        for path in self.paths:
            if (info := _stat(path)) is not None:
                self._known.setdefault((info.st_dev, info.st_ino), path)
        self._devices: frozenset[int] | None = None

    def of(self, identity: Identity) -> str | None:
        """The given path that this is, None for any other."""
        return self._known.get(identity)

    def on_the_way(self, device: int) -> bool:
        """Whether a path that was given leads over this file system."""
        if self._devices is None:
            above: set[str] = set()
            for path in (*self.paths, *self._typed):
                while path not in above:
                    above.add(path)
                    path = os.path.dirname(path)
            self._devices = frozenset(info.st_dev for path in above if (info := _stat(path)) is not None)
        return device in self._devices


class Way:
    """The way from a root to `path` below it, its directories held open: a context manager, left when all is opened.

    `name` in directory `descriptor` is what the path means, `info` its status, a link no more. Where that is nothing but one of the
    roots itself, `expected` is its identity, which what is opened there must have. `target` is where links have led, None if there
    was no link; `root` the given path below which it lies. Raises LinkError, and OSError for what is no matter of links.
    """

    def __init__(self, root: str, path: str, roots: Roots) -> None:
        self._roots = roots
        self._root = root
        self._held: list[tuple[int, Identity, str]] = []
        self._links: list[tuple[Identity, str]] = []
        self._anchor = root
        self._info: os.stat_result | None = None
        """Of the link that `path` itself is."""
        self.expected: Identity | None = None
        try:
            self.name, self.info = self._walk(path)
            self.descriptor = self._held[-1][0]
            self.root = self._given_root()
        except OSError as error:
            self.close()
            if not self._links:
                raise
            gone = error.errno in {errno.ENOENT, errno.ENOTDIR}
            text = error.strerror or str(error)
            raise LinkError(DANGLING if gone else text[:1].lower() + text[1:], self._info) from error
        except LinkError:
            self.close()
            raise

    @property
    def target(self) -> str | None:
        """Where the links have led; None if there was none."""
        if not self._links:
            return None
        names = [name for _, _, name in self._held[1:]] + ([] if self.name == "." else [self.name])
        return os.path.join(self._anchor, *names)

    def close(self) -> None:
        """Give the descriptors back."""
        while self._held:
            os.close(self._held.pop()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _walk(self, path: str) -> tuple[str, os.stat_result]:
        """The last name and its status, the directory that holds it on top of those held."""
        self._begin(self._root)
        parts = deque(path.split("/"))
        own = len(parts)
        while parts:
            own = min(own, len(parts))
            part = parts.popleft()
            if part == "..":
                self._up(parts)
                continue
            directory, identity, _ = self._held[-1]
            info = os.stat(part, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                if own == 1 and self._info is None and not parts:
                    self._info = info
                self._follow(identity, part, parts)
            elif parts:
                self._enter(part, info)
            else:
                return part, info
        return ".", os.fstat(self._held[-1][0])

    def _begin(self, path: str) -> None:
        self.close()
        descriptor = os.open(path, _PASS_FLAGS)
        self._anchor = path
        self._hold(descriptor, "")

    def _hold(self, descriptor: int, name: str) -> None:
        info = os.fstat(descriptor)
        self._held.append((descriptor, (info.st_dev, info.st_ino), name))

    def _enter(self, name: str, info: os.stat_result) -> None:
        """Hold directory `name` too."""
        if not self._is_inside() and not self._roots.on_the_way(info.st_dev):
            raise LinkError(OUTSIDE, self._info)
        if len(self._held) >= MAX_DEPTH:
            raise LinkError(TOO_DEEP, self._info)
        self._hold(os.open(name, _PASS_FLAGS, dir_fd=self._held[-1][0]), name)

    def _up(self, parts: "deque[str]") -> None:
        """One directory up: the one that is held, or above a root the one in which the root lies."""
        if len(self._held) > 1:
            os.close(self._held.pop()[0])
        elif self._anchor != "/":
            parts.extendleft(reversed(_parts(os.path.dirname(self._anchor))))
            self._begin("/")

    def _follow(self, directory: Identity, name: str, parts: "deque[str]") -> None:
        """Put where link `name` leads before what is left of the way."""
        seen = (directory, name) in self._links
        self._links.append((directory, name))
        if len(self._links) > MAX_LINKS:
            raise LinkError(CIRCLE if seen else TOO_MANY, self._info)
        text = os.readlink(name, dir_fd=self._held[-1][0])
        parts.extendleft(reversed(_parts(text)))
        if text.startswith("/"):
            self._begin("/")

    def _is_inside(self) -> bool:
        return any(self._roots.of(identity) is not None for _, identity, _ in self._held)

    def _given_root(self) -> str:
        """The given path below which the end of the way lies. Raises LinkError if there is none."""
        for _, identity, _ in self._held:
            if (root := self._roots.of(identity)) is not None:
                return root
        if self._anchor == self._root:
            return self._root
        own = self.info.st_dev, self.info.st_ino
        if (root := self._roots.of(own)) is None:
            raise LinkError(OUTSIDE, self._info)
        self.expected = own
        return root


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
