"""References that kerchunk wrote, as a source: one JSON file, or a directory of Parquet files."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from intarsia._compat import parsed_group
from intarsia.archives.formats.virtualizarr import SourceParser, VirtualFormat
from intarsia.archives.source_files import FormatProbe, Sources
from intarsia.errors import IngestError
from intarsia.extras import import_extra


def recognise(probe: FormatProbe, sources: Sources, group: str) -> VirtualFormat | None:
    """The format, if a source is a set of references."""
    is_table = ".zmetadata" in probe.names and probe.url.rstrip("/").endswith((".parq", ".parquet"))
    if not is_table and not probe.head.lstrip().startswith(b"{"):
        return None
    return VirtualFormat("kerchunk", KerchunkParser(sources, is_table=is_table), group)


class KerchunkParser(SourceParser):
    """The arrays that references describe; their fill values mean "missing", as in xarray."""

    def __init__(self, sources: Sources, *, is_table: bool) -> None:
        super().__init__(sources)
        self.is_table = is_table

    def __call__(self, url: str, registry: Any) -> Any:
        parsers = import_extra("virtualizarr.parsers", "virtual")
        parser = parsers.KerchunkParquetParser() if self.is_table else parsers.KerchunkJSONParser()
        store = parser(url, registry)
        arrays = parsed_group(store).arrays
        documents = self._documents(url)
        _check_keys(documents, {name: array.ndim for name, array in arrays.items()})
        for name, array in arrays.items():
            document = documents.get(f"{name}/.zarray", {})
            fill = (json.loads(document) if isinstance(document, str) else document).get("fill_value")
            attributes = array.metadata.attributes
            if fill is not None and "_FillValue" not in attributes and array.dtype.kind in "iuf":
                self.attributes[name] = {**attributes, "_FillValue": array.dtype.type(fill)}
        return store

    def _documents(self, url: str) -> Mapping[str, Any]:
        """Metadata by key; in a JSON file, also the references."""
        place, key = (f"{url.rstrip('/')}/.zmetadata", "metadata") if self.is_table else (url, "refs")
        document = json.loads(self.sources.get(place))
        if document.get("gen"):
            raise IngestError(
                "its references are generated from a pattern ('gen'), which is not supported: write each one "
                "out"
            )
        documents: Mapping[str, Any] = document.get(key, document)
        return documents


def _check_keys(documents: Iterable[str], ndims: Mapping[str, int]) -> None:
    """Refuse keys of chunks with too few or too many numbers: VirtualiZarr would show a chunk repeatedly."""
    for key in documents:
        name, _, place = key.partition("/")
        parts = place.replace("/", ".").split(".")
        if name in ndims and all(map(str.isdecimal, parts)) and len(parts) != max(ndims[name], 1):
            raise IngestError(
                f"the reference {key!r} does not name a chunk of an array with {ndims[name]} axes"
            )
