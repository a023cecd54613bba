"""What meeting nulls changes in zarr: the class that allocates arrays, and two codecs.

An array with nulls needs memory that zarr does not know of, and zarr asks one class, named in its
configuration, for all of it. It is set when the first data type with nulls is made, from whatever source;
a process that meets none keeps zarr as it is. A choice that somebody made before is left alone.
"""

from __future__ import annotations

from functools import cache

import zarr
from zarr.registry import register_codec, register_ndbuffer

__all__ = ["install", "meet_nulls"]

STOCK_NDBUFFERS = ("zarr.buffer.cpu.NDBuffer", "zarr.core.buffer.cpu.NDBuffer")
NDBUFFER = "intarsia.nullable.buffer.NullableNDBuffer"


def install() -> None:
    """Make zarr use `NullableNDBuffer`, and codecs for arithmetic that leave nulls alone.

    >>> install()
    >>> zarr.config.get("ndbuffer")
    'intarsia.nullable.buffer.NullableNDBuffer'
    """
    # zarr imports this module with every data type it asks for: the rest waits until it is needed.
    from intarsia.nullable.arithmetic import PresentCastValue, PresentScaleOffset
    from intarsia.nullable.buffer import NullableNDBuffer

    register_ndbuffer(NullableNDBuffer, NDBUFFER)
    if zarr.config.get("ndbuffer") in STOCK_NDBUFFERS:
        zarr.config.set({"ndbuffer": NDBUFFER})
    for name, codec in (("scale_offset", PresentScaleOffset), ("cast_value", PresentCastValue)):
        qualname = f"{codec.__module__}.{codec.__qualname__}"
        register_codec(name, codec, qualname=qualname)
        if zarr.config.get("codecs").get(name) is None:
            zarr.config.set({f"codecs.{name}": qualname})


@cache  # once: whoever chooses other classes afterwards keeps them
def meet_nulls() -> None:
    """Called for every data type with nulls; the first installs what they need.

    >>> meet_nulls()
    """
    install()
