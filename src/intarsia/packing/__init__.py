"""How stored numbers become values: a scale, an offset, missing values, as the CF conventions have them."""

from intarsia.packing.packing import Packing

__all__ = ["Packing"]
