"""The fixtures of logical arrays serve the engine too."""

from tests.logical.conftest import _threads_for_little, place  # noqa: F401 (fixtures are found by name)
