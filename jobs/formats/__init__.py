"""Shard formats, one module each. They stand on NumPy and the standard library alone, Parquet on Arrow too."""
