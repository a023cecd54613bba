"""Logical arrays: one array made of several Zarr arrays.

- `logical_array` is the public class; `opening` creates and opens, `hierarchy` finds arrays in a store.
- `logical_array_handle` holds the manifest and the members; `members` opens them, `member_metadata` looks
  at many without opening them, `encoding` says how new ones are stored.
- Edits: `staging` is the one way for data to get in; `append`, `edit` (add, drop, resize, join), `recode`,
  and `replicas` (and the policy).
- `region` and `attributes` are what users see; `chunk_copies` moves encoded chunks between arrays.
- `verify` finds what is wrong, `vacuum` removes what nothing refers to, `explain` says what a read does,
  `advice` and `optimization` choose encodings.
"""
