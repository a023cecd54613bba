"""Zarr that VirtualiZarr does not parse: format 2 with any filter, a lone array of format 3, and N5.

Arrays of format 2 become format 3 one by one, so one that cannot be translated does not affect the others.
zarr's own translation, which VirtualiZarr relies on, has no filters that work on bytes, such as `shuffle`,
and no texts. In N5, every block is a file, which zarr-n5's `n5_default` decodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.core.metadata.v3 import ArrayV3Metadata

from intarsia._compat import sync
from intarsia.archives.cf import encoded_fill_attribute
from intarsia.archives.formats.virtualizarr import parser_error_text
from intarsia.archives.locations import Sources
from intarsia.archives.plan.encodings import is_bytes_codec
from intarsia.errors import IngestError
from intarsia.extras import extra
from intarsia.manifest.box import chunk_grid

ARRAY, ATTRIBUTES, GROUP, CONSOLIDATED = ".zarray", ".zattrs", ".zgroup", ".zmetadata"
TEXTS = "vlen-utf8"


class ZarrV2Parser:
    """The arrays of a Zarr v2 hierarchy; `VirtualFormat` uses it like one of VirtualiZarr's parsers."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

        self.unread: dict[str, str] = {}
        """Arrays that cannot be translated, by path, and why."""

    def __call__(self, url: str, registry: Any) -> Any:
        manifests = extra("virtualizarr.manifests", "virtual")
        root = url.rstrip("/")
        documents = self.documents(root)
        return manifests.ManifestStore(group=self._group(root, "", documents), registry=registry)

    def documents(self, root: str) -> dict[str, Any]:
        """All metadata of the hierarchy, by key."""
        found = self._json(f"{root}/{CONSOLIDATED}")
        return dict(found["metadata"]) if found else dict(self._walked(root, ""))

    def _json(self, url: str) -> Any:
        try:
            return json.loads(self.sources.get(url))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _walked(self, root: str, prefix: str) -> Iterator[tuple[str, Any]]:
        place = f"{root}/{quote(prefix)}"
        keys = {key: found for key in (ARRAY, ATTRIBUTES, GROUP) if (found := self._json(place + key))}
        yield from ((prefix + key, found) for key, found in keys.items())
        if ARRAY not in keys and (GROUP in keys or not prefix):
            for name in self.sources.names_in(place):
                if not name.startswith("."):
                    yield from self._walked(root, f"{prefix}{name}/")

    def _group(self, root: str, prefix: str, documents: Mapping[str, Any]) -> Any:
        manifests = extra("virtualizarr.manifests", "virtual")
        arrays, groups = {}, {}
        if ARRAY in documents and not prefix:  # an array without a group around it
            arrays[root.rsplit("/", 1)[-1].removesuffix(".zarr")] = self._array(root, "", documents)
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
        manifests = extra("virtualizarr.manifests", "virtual")
        parsers = extra("virtualizarr.parsers.zarr.zarr", "virtual")
        document = documents[f"{prefix}{ARRAY}"]
        metadata = translated(document, documents.get(f"{prefix}{ATTRIBUTES}", {}))
        store, inside = self.sources.resolve(url)
        listed = parsers.build_chunk_manifest(
            store, inside, unquote(url).removesuffix(inside), metadata, parsers.ZarrFormat.V2,
            document.get("dimension_separator") or ".",
        )  # fmt: skip
        return manifests.ManifestArray(metadata=metadata, chunkmanifest=sync(listed))


def translated(document: Mapping[str, Any], attributes: Mapping[str, Any]) -> ArrayV3Metadata:
    """The metadata of a v2 array as that of a v3 array; its fill value means "missing", as in xarray.

    >>> zarray = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i2", "fill_value": 0}
    >>> codecs = {"filters": [{"id": "shuffle", "elementsize": 2}], "compressor": {"id": "zlib", "level": 1}}
    >>> zarray |= {"order": "C", **codecs}
    >>> [codec.to_dict()["name"] for codec in translated(zarray, {}).codecs]
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
    given = {**document, "filters": on_arrays or None, "attributes": attributes}
    if are_texts:  # zarr does not translate objects; only the codecs for bytes are needed
        given |= {"dtype": "|u1", "fill_value": 0}
    common = extra("virtualizarr.parsers.zarr.common", "virtual")
    metadata = common.metadata_as_v3(ArrayV2Metadata.from_dict(given)).to_dict()
    codecs: Any = list(metadata["codecs"])
    serializer = next(i for i, codec in enumerate(codecs) if codec["name"] == "bytes")
    as_v3 = extra("virtualizarr.codecs", "virtual").zarr_codec_config_to_v3
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


class ZarrArrayParser:
    """A Zarr v3 array without a group around it: one variable, named after its directory.

    `VirtualFormat` uses it like one of VirtualiZarr's parsers.
    """

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def __call__(self, url: str, registry: Any) -> Any:
        manifests = extra("virtualizarr.manifests", "virtual")
        parsers = extra("virtualizarr.parsers.zarr.zarr", "virtual")
        root = url.rstrip("/")
        metadata = ArrayV3Metadata.from_dict(json.loads(self.sources.get(f"{root}/zarr.json")))
        store, inside = self.sources.resolve(root)
        separator = getattr(metadata.chunk_key_encoding, "separator", "/")
        listed = parsers.build_chunk_manifest(
            store, inside, unquote(root).removesuffix(inside), metadata, parsers.ZarrFormat.V3, separator
        )
        array = manifests.ManifestArray(metadata=metadata, chunkmanifest=sync(listed))
        name = unquote(root).rsplit("/", 1)[-1].removesuffix(".zarr")
        return manifests.ManifestStore(group=manifests.ManifestGroup(arrays={name: array}), registry=registry)


N5_ATTRIBUTES = "attributes.json"
N5_NEEDED = {"dimensions", "blockSize", "dataType", "compression"}


def is_n5(document: Any) -> bool:
    """Whether an attributes.json belongs to N5."""
    return isinstance(document, dict) and ("n5" in document or document.keys() >= N5_NEEDED)


class N5Parser:
    """Parses the datasets of one N5 group, or one dataset.

    Axes are in N5's own order, the fastest first, as in zarr-n5. Their names come from the attribute `axes`,
    if there is one.
    """

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def __call__(self, url: str, registry: Any) -> Any:
        manifests = extra("virtualizarr.manifests", "virtual")
        url = url.rstrip("/")
        arrays = {}
        if (document := self._attributes(url)) is not None and document.keys() >= N5_NEEDED:
            arrays[url.rsplit("/", 1)[-1].removesuffix(".n5")] = self._array(url, document)
        else:
            for name in self.sources.names_in(url):
                inner = self._attributes(f"{url}/{quote(name)}")
                if inner is not None and inner.keys() >= N5_NEEDED:
                    arrays[name] = self._array(f"{url}/{quote(name)}", inner)
        if not arrays:
            raise IngestError("it holds no N5 dataset")
        return manifests.ManifestStore(group=manifests.ManifestGroup(arrays=arrays), registry=registry)

    def _attributes(self, url: str) -> dict[str, Any] | None:
        try:
            document = json.loads(self.sources.get(f"{url}/{N5_ATTRIBUTES}"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return document if isinstance(document, dict) else None

    def _array(self, url: str, document: dict[str, Any]) -> Any:
        manifests = extra("virtualizarr.manifests", "virtual")
        axes = document.get("axes")
        n5 = extra("zarr_n5.metadata", "n5")
        if document["dataType"] not in n5.COMPATIBLE_DATA_TYPES:
            raise IngestError(
                f"its data type {document['dataType']!r} is not supported, only numbers are: "
                f"{', '.join(n5.COMPATIBLE_DATA_TYPES)}"
            )
        # through the group: the other constructor of zarr-n5 0.3 calls itself with too few arguments
        array = n5.N5ArrayMetadata.from_group(n5.N5GroupMetadata.from_jso(dict(document)))
        metadata: dict[str, Any] = array.to_zarr().to_dict()
        compression = document["compression"]
        if compression["type"] == "gzip" and compression.get("useZlib"):  # zarr-n5 0.3 takes it for gzip
            *others, gzip = metadata["codecs"][0]["configuration"]["codecs"]
            zlib = {"name": "numcodecs.zlib", "configuration": {"level": gzip["configuration"]["level"]}}
            metadata["codecs"][0]["configuration"]["codecs"] = [*others, zlib]
        metadata["attributes"] = {k: v for k, v in document.items() if k not in N5_NEEDED | {"n5", "axes"}}
        ndim = len(metadata["shape"])
        if isinstance(axes, list) and len(axes) == ndim and all(isinstance(axis, str) for axis in axes):
            metadata["dimension_names"] = axes
        metadata["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "."}}
        chunk_shape = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        grid = chunk_grid(metadata["shape"], chunk_shape)
        paths = np.full(grid, "", dtype=np.dtypes.StringDType())
        lengths = np.zeros(grid, dtype=np.uint64)
        store, root = self.sources.resolve(url)
        for batch in extra("obstore", "virtual").list(store, root.rstrip("/") + "/"):
            for meta in batch:
                parts = meta["path"].removeprefix(root.rstrip("/") + "/").split("/")
                if len(parts) == ndim and all(part.isdecimal() for part in parts):
                    index = tuple(int(part) for part in parts)
                    if all(i < n for i, n in zip(index, grid, strict=True)):
                        paths[index] = f"{url}/{'/'.join(parts)}"
                        lengths[index] = meta["size"]
        manifest = manifests.ChunkManifest.from_arrays(
            paths=paths, offsets=np.zeros(grid, dtype=np.uint64), lengths=lengths
        )
        return manifests.ManifestArray(metadata=ArrayV3Metadata.from_dict(metadata), chunkmanifest=manifest)
