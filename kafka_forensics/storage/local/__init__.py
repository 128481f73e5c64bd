"""Files of this machine: opened by descriptors, read with `pread`, and never followed out of what was given."""
