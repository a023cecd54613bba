"""Archives of files as logical arrays, without copying.

Every name is imported when it is first used: `__init__.pyi` says where it lives.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
