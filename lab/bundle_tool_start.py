"""What the one file of `make bundle-tool` runs first: its `__main__`, which ends where this Python or system is not the file's.

A Python of long ago must understand it, too, so as to be told: there are no annotations, and nothing of later versions.
"""

import json
import os
import sys
import zipfile

TYPE_CHECKING = False

if __name__ == "__main__":
    ARCHIVE = os.path.dirname(os.path.abspath(__file__))
    with zipfile.ZipFile(ARCHIVE) as archive:
        CONTENTS = archive.read("contents.json")
    MADE_FOR = json.loads(CONTENTS.decode("utf-8"))["made_for"]
    SYSTEM = [sys.platform, os.uname()[4]] if hasattr(os, "uname") else [sys.platform, ""]
    PYTHON = list(sys.version_info[:2])
    C_LIBRARY = ""
    if MADE_FOR["glibc"] and "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", ()):
        C_LIBRARY = os.confstr("CS_GNU_LIBC_VERSION") or ""
    GLIBC = [int(number) for number in C_LIBRARY.replace("glibc ", "").split(".") if number.isdigit()]

    wanted = ".".join(map(str, MADE_FOR["python"]))
    problem = ""
    if MADE_FOR["python"] != PYTHON or "PyPy" in sys.version:
        problem = "this file runs with Python " + wanted + ", and this is " + sys.version.split()[0] + " (" + sys.executable + ")"
        hint = "run it as python" + wanted + " FILE, or make one for this Python (3.11 or newer): docs/bundle-tool.md"
    elif MADE_FOR["system"] != SYSTEM:
        problem = "this file runs on " + " ".join(MADE_FOR["system"]) + ", and this is " + " ".join(SYSTEM).strip()
        hint = "make the file on a system like this one: make bundle-tool (docs/bundle-tool.md)"
    elif MADE_FOR["glibc"] and MADE_FOR["glibc"] > GLIBC:
        problem = (
            "this file needs glibc " + ".".join(map(str, MADE_FOR["glibc"])) + " or newer, and here is " + (C_LIBRARY or "none")
        )
        hint = "run it in a container, or copy the logs to a newer system (docs/platforms.md)"
    if problem:
        sys.stderr.write("error: " + problem + "\nhint: " + hint + "\n")
        sys.exit(2)

    if TYPE_CHECKING:
        from lab.bundle_tool_unpack import run
    else:
        from unpack import run
    run(ARCHIVE, CONTENTS)
