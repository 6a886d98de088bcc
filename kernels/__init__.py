"""Arrays in, arrays out: the computing. Nothing here knows Dask, files or configuration."""
