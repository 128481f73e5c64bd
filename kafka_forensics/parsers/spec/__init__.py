"""Every byte layout, declared once with construct: exact, readable, slow; the twin that kernels are held against."""
