"""A Zarr v3 array without a group around it: one variable, named as its directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from zarr.core.metadata.v3 import ArrayV3Metadata

from intarsia._compat import sync
from intarsia.extras import extra

if TYPE_CHECKING:
    from intarsia.archives.locations import Sources


class ZarrArrayParser:
    """Parses one array; `VirtualFormat` takes it as one of VirtualiZarr's parsers."""

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
