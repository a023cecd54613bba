"""Zarr v3 codecs. Entry points register them with zarr, so nothing has to be imported to read.

Every name is imported when it is first used: `__init__.pyi` says where it lives.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
