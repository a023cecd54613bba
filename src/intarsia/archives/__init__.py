"""Archives of files as logical arrays, without copying: `ingest` and everything around it.

The way through: `ingest_arguments` (what the caller says) -> `source_files` (and what identifies
their content) -> `parse` (by `formats/`, in a `parse_pool`) -> `plan/` (what fits, what goes where) ->
`write_plan` (with the `ledger`) -> `xarray_check`. `ingestion` leads through it, batch by batch, and each
batch is a commit.

Beside it: `cache` (archives that are opened in one line), `cf` (attributes: packed numbers, texts), `dataset`
(a dataset before files are added), `groups` (files as trees), `ingest_report` (what an ingest did),
`parsed_file` (what a parser returns), `preprocess` (the caller's function), `provenance` (which file holds
what), `relocation` (files that moved), `source_access` (letting a repository read its sources).

For programs without intarsia, `references/` writes datasets as plain references.

To add a format, add a file to `formats/` and its module to `parse.FORMATS`.

Every public name is imported when it is first used; `__init__.pyi` says where it lives.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
