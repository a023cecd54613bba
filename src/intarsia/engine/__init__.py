"""Any Zarr array, read and written fast.

A read goes one way: `request` (what a selection means) -> `plan` (which part of which member;
`replica_choice` swaps in replicas that cost less) -> `chunk_plan` (which chunks; with `inner_chunks`, which
piece of a shard or chunk) -> `fetch/` -> `chunk_codecs` -> the output. `read` leads through it; `write` and
`write_chunks` go the other way.

- `prepared_member` says what the engine reads itself, with `format_2` for old arrays; `zarr_fallback`
  leaves the rest to zarr.
- `array_handle` is what reads and writes see of an array; `reader` and `stored_array` are what users hold.
- `config` has the settings (threads, window, cache); `thread_pool` has the threads, and its `threads_for`
  decides how many of them a read or write takes; `chunk_cache` keeps decoded chunks.
- `accessors` has the methods of arrays that higher packages provide, such as `to_dask`.
"""
