"""Known incidents by their signatures, and settings that allow them."""
