"""Inspects processes through `/proc`: which are left behind, and on which addresses they listen."""

import os
import socket
import struct
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_LISTEN: Final = "0A"


def mentioning(text: str) -> dict[int, str]:
    """Process id → command line of running processes whose command line contains `text`, without this process and its parents."""
    commands, ancestors = {}, _with_parents(os.getpid())
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) in ancestors:
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # the process ended meanwhile
            continue
        if text in command:
            commands[int(entry.name)] = command
    return commands


def _with_parents(process_id: int) -> set[int]:
    """A process and all its ancestors."""
    parents: set[int] = set()
    while process_id > 0 and process_id not in parents:
        parents.add(process_id)
        status = (PROC / str(process_id) / "status").read_text()
        process_id = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
    return parents


def listening(process_id: int) -> set[tuple[str, int]]:
    """(address, port) of every TCP socket on which a process listens."""
    inodes = set()
    for descriptor in (PROC / str(process_id) / "fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:  # the descriptor was closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    listeners = set()
    for table in ("tcp", "tcp6"):
        for line in (PROC / str(process_id) / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                address, port = fields[1].split(":")
                listeners.add((_address_text(address), int(port, 16)))
    return listeners


def _address_text(address: str) -> str:
    """An address from the kernel's form: 32-bit words in native byte order, in hex."""
    words = [struct.pack("=I", int(address[start : start + 8], 16)) for start in range(0, len(address), 8)]
    packed = b"".join(words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
