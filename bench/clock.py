"""Runs a command with its output discarded; prints its exit status, seconds, CPU seconds, and peak memory in KiB.

A separate process that is as small as Python can be, because a child's peak memory starts from the size of its parent.
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
