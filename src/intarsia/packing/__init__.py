"""How stored numbers become values: a scale, an offset and missing values, as in the CF conventions."""

from intarsia.packing.packing import Packing

__all__ = ["Packing"]
