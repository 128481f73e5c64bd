"""Facts on their way out: Parquet datasets, and what a scan's answer shows in a notebook."""
