"""Print the lowest versions that pyproject.toml allows as constraints for pip, for `make test-min`.

Only the dependencies of the package and of its extras count: tests may use any version of their tools.
"""

import re
import tomllib
from pathlib import Path

FLOOR = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?>=(?P<version>[\w.]+)")


def floors(pyproject: Path) -> list[str]:
    """`name==version` for every dependency; one without a floor is an error."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    pins = set()
    for requirement in (entry for entries in lists for entry in entries):
        if requirement.startswith(f"{project['name']}["):
            continue  # an extra made of others
        found = FLOOR.match(requirement)
        if found is None:
            raise SystemExit(f"{pyproject}: {requirement!r} has no lowest version: write name>=version")
        pins.add(f"{found['name']}=={found['version']}")
    return sorted(pins)


if __name__ == "__main__":
    print(*floors(Path(__file__).parent.parent / "pyproject.toml"), sep="\n")
