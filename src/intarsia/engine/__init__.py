"""Any Zarr array, read and written fast.

A read goes one way: `request` (what a selection means) -> `plan` (which part of which member) -> `chunk_plan`
(which chunks) -> `fetch/` -> `chunk_codecs` -> the output. `read` leads through it; `write` and
`write_chunks` go the other way. `prepared_member` says what the engine reads itself; `zarr_fallback` leaves the
rest to zarr. `reader` and `stored_array` are the handles, `state` is what they read.
"""
