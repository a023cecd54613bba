"""Arrays over HTTP: as ordinary Zarr for programs, and as a page for people to look at."""
