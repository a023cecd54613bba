"""Fetching encoded chunks: one entry point for every kind of store, each read in the fastest safe way.

- `fetcher_choice` has `fetcher_for`, the entry point; opening an array loads nothing of it.
- `store` has the protocols, and reads any store of zarr's; `local_files` reads files on this machine.
- `icechunk` reads a session; `virtual` says which files outside it may be read directly, and reads them;
  `icechunk_checksums` tells whether these changed; `byte_ranges` joins ranges.
- `symlinks` refuses links that lead out of a store; `read_errors` puts failures into helpful words.
"""
