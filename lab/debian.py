"""Debian systems in a folder, made with debootstrap: the package runs there without what this machine has."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

MIRROR: Final = "http://deb.debian.org/debian"
PACKAGES: Final = ("python3-venv", "python-is-python3", "ca-certificates")
CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"


def can_make_debian() -> bool:
    """Whether this process is root and debootstrap is installed."""
    return os.geteuid() == 0 and shutil.which("debootstrap") is not None


def make_debian(suite: str, root: Path, *packages: str) -> None:
    """Install the smallest Debian of a suite with its Python and further packages into the new folder `root`."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join([*PACKAGES, *packages])}", suite, str(root), MIRROR]
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=900, check=True)


def enter(root: Path, mounts: Iterable[str] = (), *, read_only: bool = False, network: bool = True) -> tuple[str, ...]:
    """The beginning of a command whose rest runs in `root`.

    `mounts` are further arguments of `mount`. The kernel removes all mounts when the command ends. With SSL_CERT_FILE set, its
    authorities replace Debian's.
    """
    place = shlex.quote(str(root))
    given = os.environ.get("SSL_CERT_FILE")
    lines = [
        *([f"--bind {place} {place}", f"-o remount,bind,ro {place}"] if read_only else []),
        f"--bind /dev {place}/dev",
        f"-t tmpfs -o mode=1777 tmpfs {place}/dev/shm",  # noqa: S108 - a mount point
        f"-t proc proc {place}/proc",
        *([f"--bind {shlex.quote(given)} {place}/{CERTIFICATES}"] if given else []),
        *mounts,
    ]
    script = "\n".join([*(f"mount {line} || exit 125" for line in lines), f'exec chroot {place} "$@"'])
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
    return ("unshare", *namespaces, "sh", "-c", script, "sh")
