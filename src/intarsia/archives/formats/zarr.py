"""Zarr: groups of format 3, which VirtualiZarr parses, and of format 2 with any filter.

Arrays of format 2 become format 3 one by one, so one that cannot be translated does not affect the others.
zarr's own translation, which VirtualiZarr relies on, has no filters that work on bytes, such as `shuffle`,
and no texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.core.metadata.v3 import ArrayV3Metadata

from intarsia._compat import sync
from intarsia.archives.cf import encoded_fill_attribute
from intarsia.archives.formats.virtualizarr import SourceParser, VirtualFormat, parser_error_text
from intarsia.archives.plan.encodings import is_bytes_codec
from intarsia.archives.source_files import FormatProbe, Sources
from intarsia.errors import IngestError
from intarsia.extras import import_extra

ARRAY, ATTRIBUTES, GROUP, CONSOLIDATED = ".zarray", ".zattrs", ".zgroup", ".zmetadata"
TEXTS = "vlen-utf8"
ALONE = "it is an array without a group: intarsia.adopt and intarsia.convert take arrays"


def recognise(probe: FormatProbe, sources: Sources, group: str) -> VirtualFormat | None:
    """The format, if a directory is Zarr."""
    if "zarr.json" in probe.names:
        return VirtualFormat("zarr", ZarrV3Parser(sources), group)
    if {ARRAY, ATTRIBUTES, GROUP, CONSOLIDATED}.isdisjoint(probe.names):
        return None
    return VirtualFormat("zarr", ZarrV2Parser(sources), group)


class ZarrV2Parser(SourceParser):
    """The arrays of a Zarr v2 hierarchy."""

    def __call__(self, url: str, registry: Any) -> Any:
        manifests = import_extra("virtualizarr.manifests", "virtual")
        root = url.rstrip("/")
        found = self.json(f"{root}/{CONSOLIDATED}")
        documents = found["metadata"] if found else dict(self._walked(root, ""))
        if ARRAY in documents:
            raise IngestError(ALONE)
        return manifests.ManifestStore(group=self._group(root, "", documents), registry=registry)

    def _walked(self, root: str, prefix: str) -> Iterator[tuple[str, Any]]:
        place = f"{root}/{quote(prefix)}"
        keys = {key: found for key in (ARRAY, ATTRIBUTES, GROUP) if (found := self.json(place + key))}
        yield from ((prefix + key, found) for key, found in keys.items())
        if ARRAY not in keys and (GROUP in keys or not prefix):
            for name in self.sources.names_in(place):
                if not name.startswith("."):
                    yield from self._walked(root, f"{prefix}{name}/")

    def _group(self, root: str, prefix: str, documents: Mapping[str, Any]) -> Any:
        manifests = import_extra("virtualizarr.manifests", "virtual")
        arrays, groups = {}, {}
        below = (key.removeprefix(prefix) for key in documents if key.startswith(prefix))
        for name in dict.fromkeys(key.split("/", 1)[0] for key in below if "/" in key):
            path = f"{prefix}{name}"
            if f"{path}/{ARRAY}" not in documents:
                groups[name] = self._group(root, f"{path}/", documents)
                continue
            try:
                arrays[name] = self._array(f"{root}/{quote(path)}", f"{path}/", documents)
            except (IngestError, ValueError, TypeError, KeyError, NotImplementedError) as error:
                # from zarr and VirtualiZarr, for metadata that makes no sense or that they do not know
                self.unread[path] = f"it cannot be referenced: {parser_error_text(error)}"
        attributes = documents.get(f"{prefix}{ATTRIBUTES}", {})
        return manifests.ManifestGroup(arrays=arrays, groups=groups, attributes=attributes)

    def _array(self, url: str, prefix: str, documents: Mapping[str, Any]) -> Any:
        parser = import_extra("virtualizarr.parsers.zarr.zarr", "virtual")
        document = documents[f"{prefix}{ARRAY}"]
        metadata = v2_to_v3_metadata(document, documents.get(f"{prefix}{ATTRIBUTES}", {}))
        store, inside = self.sources.resolve(url)
        base, separator = unquote(url).removesuffix(inside), document.get("dimension_separator") or "."
        chunks = parser.build_chunk_manifest(store, inside, base, metadata, parser.ZarrFormat(2), separator)
        return parser.ManifestArray(metadata=metadata, chunkmanifest=sync(chunks))


def v2_to_v3_metadata(document: Mapping[str, Any], attributes: Mapping[str, Any]) -> ArrayV3Metadata:
    """The metadata of a v2 array as that of a v3 array; its fill value means "missing", as in xarray.

    >>> zarray = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i2", "fill_value": 0}
    >>> codecs = {"filters": [{"id": "shuffle", "elementsize": 2}], "compressor": {"id": "zlib", "level": 1}}
    >>> zarray |= {"order": "C", **codecs}
    >>> [codec.to_dict()["name"] for codec in v2_to_v3_metadata(zarray, {}).codecs]
    ['bytes', 'numcodecs.shuffle', 'numcodecs.zlib']
    """
    filters = list(document.get("filters") or ())
    on_bytes = [each for each in filters if each["id"] == TEXTS or is_bytes_codec(f"numcodecs.{each['id']}")]
    on_arrays = filters[: len(filters) - len(on_bytes)]
    if filters != on_arrays + on_bytes:
        names = ", ".join(each["id"] for each in filters)
        raise IngestError(f"its filters ({names}) turn numbers into bytes and then expect numbers again")
    are_texts = TEXTS in (each["id"] for each in on_bytes)
    attributes = _with_fill_value(document, dict(attributes))
    document_2 = {**document, "filters": on_arrays or None, "attributes": attributes}
    if are_texts:  # zarr does not translate objects; only the codecs for bytes are needed
        document_2 |= {"dtype": "|u1", "fill_value": 0}
    common = import_extra("virtualizarr.parsers.zarr.common", "virtual")
    metadata = common.metadata_as_v3(ArrayV2Metadata.from_dict(document_2)).to_dict()
    codecs: Any = list(metadata["codecs"])
    serializer = next(i for i, codec in enumerate(codecs) if codec["name"] == "bytes")
    as_v3 = import_extra("virtualizarr.codecs", "virtual").zarr_codec_config_to_v3
    if are_texts:
        codecs[serializer] = {"name": TEXTS}
        metadata |= {"data_type": "string", "fill_value": str(document.get("fill_value") or "")}
    elif on_arrays and "astype" in on_arrays[-1]:  # the stored numbers have its byte order
        endian = "big" if on_arrays[-1]["astype"].startswith(">") else "little"
        codecs[serializer] = {"name": "bytes", "configuration": {"endian": endian}}
    codecs[serializer + 1 : serializer + 1] = [as_v3(each) for each in on_bytes if each["id"] != TEXTS]
    return ArrayV3Metadata.from_dict({**metadata, "codecs": codecs})


def _with_fill_value(document: Mapping[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    fill, kind = document.get("fill_value"), document["dtype"]
    if fill is None or "_FillValue" in attributes or not isinstance(kind, str):  # a list means fields
        return attributes
    kind = np.dtype(kind)
    if kind.kind not in "iuf":
        return attributes
    return attributes | {"_FillValue": encoded_fill_attribute(kind.type(fill), kind)}


class ZarrV3Parser(SourceParser):
    """The arrays of a Zarr v3 hierarchy."""

    def __call__(self, url: str, registry: Any) -> Any:
        if self.json(f"{url.rstrip('/')}/zarr.json")["node_type"] == "array":
            raise IngestError(ALONE)
        return import_extra("virtualizarr.parsers", "virtual").ZarrParser()(url, registry)
