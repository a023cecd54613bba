"""Zarr codecs and per-chunk decisions. If you only want `conditional`, this room is all you read.

- One codec a file: `conditional`, `pad` (and `offset`; `chunk_headers` are TIFF and N5 headers for it),
  `packbits`, `shuffle`, `reshape`; `base` is shared, and `configuration` checks what zarr.json says.
- `decisions` say which nested codecs apply to a chunk; `nested` calls them one at a time.
- `context` has the pipelines that tell a codec its chunk; `runtime_options` travel with an array.
- For arrays that exist: `stored_decisions` (and masks), `chunk_rewrite`; both walk along `codec_path`.
- Below shards and engine alike: `compressors`, `coding_costs`, `shard_index`, `stored_chunks`.

Entry points register the codecs with zarr, so nothing has to be imported to read. Every public name is
imported when it is first used; `__init__.pyi` says where it lives.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
