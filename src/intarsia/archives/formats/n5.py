"""N5: every block is a file, which zarr-n5's `n5_default` decodes."""

from __future__ import annotations

import json
from lzma import FORMAT_XZ
from typing import Any
from urllib.parse import quote

from zarr.core.metadata.v3 import ArrayV3Metadata

from intarsia.archives.formats.virtualizarr import SourceParser, VirtualFormat
from intarsia.archives.source_files import FormatProbe, Sources
from intarsia.errors import IngestError
from intarsia.extras import import_extra
from intarsia.manifest.box import chunk_grid

ATTRIBUTES = "attributes.json"
NEEDED = {"dimensions", "blockSize", "dataType", "compression"}

RAW = {"type": "raw"}
OWN_COMPRESSORS: dict[str, dict[str, Any]] = {
    "zlib": {"name": "numcodecs.zlib", "configuration": {"level": -1}},
    "bzip2": {"name": "numcodecs.bz2", "configuration": {"level": 9}},
    "xz": {"name": "numcodecs.lzma", "configuration": {"format": FORMAT_XZ, "preset": 6}},
}
"""Compressions that zarr-n5 0.3 does not know, or takes for others; any level decodes all of them."""


def recognise(probe: FormatProbe, sources: Sources, group: str) -> VirtualFormat | None:
    """The format, if a directory is N5."""
    if ATTRIBUTES not in probe.names:
        return None
    document = json.loads(sources.get(f"{probe.url.rstrip('/')}/{ATTRIBUTES}"))
    is_n5 = isinstance(document, dict) and ("n5" in document or document.keys() >= NEEDED)
    return VirtualFormat("n5", N5Parser(sources), group) if is_n5 else None


class N5Parser(SourceParser):
    """Parses the datasets of one N5 group, or one dataset.

    Axes are in N5's own order, the fastest first, as in zarr-n5. Their names come from the attribute `axes`,
    if there is one.
    """

    def __call__(self, url: str, registry: Any) -> Any:
        manifests = import_extra("virtualizarr.manifests", "virtual")
        url = url.rstrip("/")
        arrays = {}
        if (document := self._dataset(url)) is not None:
            arrays[url.rsplit("/", 1)[-1].removesuffix(".n5")] = self._array(url, document)
        else:
            for name in self.sources.names_in(url):
                if (inner := self._dataset(f"{url}/{quote(name)}")) is not None:
                    arrays[name] = self._array(f"{url}/{quote(name)}", inner)
        if not arrays:
            raise IngestError("it holds no N5 dataset")
        return manifests.ManifestStore(group=manifests.ManifestGroup(arrays=arrays), registry=registry)

    def _dataset(self, url: str) -> dict[str, Any] | None:
        """The attributes of a dataset; None if there is none."""
        document = self.json(f"{url}/{ATTRIBUTES}")
        return document if isinstance(document, dict) and document.keys() >= NEEDED else None

    def _array(self, url: str, document: dict[str, Any]) -> Any:
        manifests = import_extra("virtualizarr.manifests", "virtual")
        axes = document.get("axes")
        n5 = import_extra("zarr_n5.metadata", "n5")
        if document["dataType"] not in n5.COMPATIBLE_DATA_TYPES:
            raise IngestError(
                f"its data type {document['dataType']!r} is not supported, only numbers are: "
                f"{', '.join(n5.COMPATIBLE_DATA_TYPES)}"
            )
        compression = document["compression"]
        is_zlib = compression["type"] == "gzip" and compression.get("useZlib")
        own = OWN_COMPRESSORS.get("zlib" if is_zlib else compression["type"])
        known = RAW if own else compression
        array = n5.N5ArrayMetadata(document["dimensions"], document["blockSize"], document["dataType"], known)
        metadata: dict[str, Any] = array.to_zarr().to_dict()
        if own:
            metadata["codecs"][0]["configuration"]["codecs"].append(own)
        metadata["attributes"] = {k: v for k, v in document.items() if k not in NEEDED | {"n5", "axes"}}
        ndim = len(metadata["shape"])
        if isinstance(axes, list) and len(axes) == ndim and all(isinstance(axis, str) for axis in axes):
            metadata["dimension_names"] = axes
        metadata["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "."}}
        chunk_shape = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        grid = chunk_grid(metadata["shape"], chunk_shape)
        entries = {}
        for key, size in self.sources.sizes_below(url).items():
            parts = key.split("/")
            if len(parts) != ndim or not all(map(str.isdecimal, parts)):
                continue
            if all(int(part) < n for part, n in zip(parts, grid, strict=True)):
                entries[".".join(parts)] = {"path": f"{url}/{key}", "offset": 0, "length": size}
        manifest = manifests.ChunkManifest(entries, shape=grid)
        return manifests.ManifestArray(metadata=ArrayV3Metadata.from_dict(metadata), chunkmanifest=manifest)
