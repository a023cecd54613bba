"""The manifest: which box of which member backs which region. No I/O but the table beside it.

- `box` is the arithmetic; `region_table` holds all regions, by column; `manifest_diff` compares two of them.
- `manifest` is the whole; `document` its JSON, and what may be wrong with it.
- `region_table_array` stores a large table of regions as an array beside the members.
- `typed_json` decodes JSON and names the field that is wrong.
- A region may have a `packing` (stored in `packing_columns`) and a `view` of its member.
- `data_types` says what values an array of a data type takes.
"""
