"""intarsia: one Zarr array, many encodings.

Every name is imported when it is first used: `__init__.pyi` says where it lives.
"""

import lazy_loader

_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    if name == "__version__":
        from importlib.metadata import version

        return version("intarsia")
    return _import(name)
