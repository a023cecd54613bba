"""Arrays over HTTP: as ordinary Zarr for programs, as a page to look at for people."""
