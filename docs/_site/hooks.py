"""What mkdocs asks of us: made pages, and a navigation that finds new pages by itself."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from generated import NAMESPACES, generated


def on_files(files: Files, config: Any) -> Files:
    """Add what is made."""
    for path, content in generated().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_config(config: Any) -> Any:
    """Replace `folder/*` in the navigation by the pages of the folder that are not listed by name."""
    listed = set(re.findall(r"[\w/.-]+\.md", json.dumps(config.nav)))
    made = [f"reference/api/{name}.md" for name in ("intarsia", *NAMESPACES)]

    def expanded(entries: list[Any]) -> list[Any]:
        result: list[Any] = []
        for entry in entries:
            if isinstance(entry, dict):
                result.append({key: expanded(v) if isinstance(v, list) else v for key, v in entry.items()})
            elif entry.endswith("/*"):
                folder = entry[:-2]
                written = sorted(f"{folder}/{p.name}" for p in Path(config.docs_dir, folder).glob("*.md"))
                pages = [*written, *(m for m in made if m.startswith(folder))]
                result += [p for p in pages if p not in listed and not config.exclude_docs.match_file(p)]
            else:
                result.append(entry)
        return result

    config.nav = expanded(config.nav)
    return config
