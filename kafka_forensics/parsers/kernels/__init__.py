"""Hot loops over bytes and columns: one source, run compiled by numba for large work and interpreted for small.

`mode` decides which before the first kernel module is imported; a test feeds both the same bytes.
"""
