"""Run a command with its output discarded and print its exit status, seconds, seconds of CPU, and peak memory in KiB.

A process of its own and as small as Python can be: a child's peak counts from its parent's size on.
"""

import os
import subprocess
import sys
import time

begin = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
seconds = time.perf_counter() - begin
process.returncode = os.waitstatus_to_exitcode(status)
print(process.returncode, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
