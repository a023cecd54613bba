"""Archives of files as logical arrays, without copying: `ingest` and everything around it.

The way through: `ingest_arguments` -> `parse` (by `formats/`, in a `parse_pool`) -> `plan/` (what fits, what
goes where) -> `write_plan` (with the `ledger`) -> `xarray_check`. `ingestion` leads through it, batch by
batch, and each batch is a commit.
To add a format, add a file to `formats/`.

Every public name is imported when it is first used; `__init__.pyi` says where it lives.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
