"""Advice of the library in the words of the command line: options for arguments, verbs for calls."""

import re
from collections.abc import Iterable

SPELLED = {
    "errors='skip'": "--skip-bad-files",
    "errors=": "--skip-bad-files",
    "dims=": "--dim",
    "variables=": "--variable",
    "combine='by_coords'": "no --concat-dim",
}
"""Arguments that have another name on the command line."""

CALLS = (
    (r"[Cc]reate one with intarsia\.open_repository\(location, create=True\)", "intarsia create makes one"),
    (r"intarsia\.create\(store, path, shape=…, chunks=…, dtype=…\)",
     "intarsia create STORE PATH --shape … --chunks … --dtype …"),
    (r"Create it in a transaction first: tx\.create\(path, shape=…, chunks=…, dtype=…\)",
     "Create it first: intarsia create STORE PATH --shape … --chunks … --dtype …"),
    (r"[Cc]onvert them first, if that is what you mean: values\.astype\('(\w+)'\)",
     r"Convert the file first, if that is what you mean: its values would have to be \1"),
    (r"intarsia\.relocate\(repo, \{'([^']*)': '([^']*)'\}\)", r"intarsia relocate STORE \1=\2"),
    (r"intarsia\.authorize\([^)]*\)", "--allow PREFIX, or --allow all"),
    (r"intarsia\.expire_and_collect(\([^)]*\))?( removes them)?", r"intarsia vacuum --forget-before TIME\2"),
    (r"(?:arr|array)\.(recode|consolidate|append|optimize)\([^)]*\)", r"intarsia \1"),
    (r"intarsia\.(verify|vacuum|convert|recode|append|ingest|lint|advise|export|adopt|compact|rewrite)\b(\([^)]*\))?",
     r"intarsia \1"),
    (r"A plain Zarr array is read with intarsia\.reader\(store, path\)",
     "It is a plain Zarr array: intarsia read reads it, intarsia convert makes a logical array of it"),
    (r"intarsia\.reader\([^)]*\)", "intarsia read"),
)  # fmt: skip
"""Calls that stand for a verb."""

ARGUMENT = re.compile(r"\b([a-z][a-z_]*)=(True|'[^']*'|\"[^\"]*\"|…)?(?![=\w])")


def in_options(message: str, options: Iterable[str]) -> str:
    """A message for whoever sits at a command line, where a command takes these options.

    >>> in_options("errors='skip' takes the others; units='ignore' trusts you", ["units"])
    '--skip-bad-files takes the others; --units ignore trusts you'
    >>> in_options("it changed (replace=True takes it again)", ["replace"])
    'it changed (--replace takes it again)'
    """
    known = {name.replace("-", "_") for name in options}
    for pattern, words in CALLS:
        message = re.sub(pattern, words, message)

    def spelled(found: re.Match[str]) -> str:
        whole, name, value = found.group(0), found.group(1), found.group(2)
        if whole in SPELLED or f"{name}=" in SPELLED:
            return SPELLED.get(whole) or SPELLED[f"{name}="]
        if name not in known:
            return whole
        option = f"--{name.replace('_', '-')}"
        return option if value in (None, "True", "…") else f"{option} {value.strip(chr(34) + chr(39))}"

    return ARGUMENT.sub(spelled, message).replace(", or replace it with overwrite=True", "")
