"""The tables beside this file: every demand of the source documents, and the tests that show it."""

import tomllib
from pathlib import Path

DOCUMENTS = {
    name: tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
    for name in ("conditional", "logical", "pad", "offset", "nullable")
}


def demands(document):
    """All rows of a document's table."""
    return [row for part in document["parts"] for row in part["demands"]]
