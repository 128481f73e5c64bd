"""Every byte layout, declared once with construct: exact, readable, slow; kernels are tested against it."""
