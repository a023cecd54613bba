"""Arguments and options that commands share."""

from dataclasses import dataclass
from typing import Annotated

import typer

VERSION = "Store and version"
"""Heading of the options that say how the store is reached, and which version is meant."""

Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Path or URL of an Icechunk repository (s3://, gs://, az://, http://) or of a Zarr store.",
        show_default=False,
    ),
]
Array = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="Path of the logical array in the store; may be left out if there is only one.",
        show_default=False,
    ),
]
OneArray = Annotated[str, typer.Argument(metavar="PATH", help="Path of the array in the store.")]
AnyArrays = Annotated[
    str, typer.Argument(metavar="PATH", help="One array; all of them if left out.", show_default=False)
]
Selection = Annotated[
    str,
    typer.Argument(
        metavar="SELECTION",
        help="As between brackets: '0:10, -1, ::2', '[3, 5], ...'; everything if left out.",
        show_default=False,
    ),
]
Branch = Annotated[
    str | None,
    typer.Option("--branch", help="The tip of this branch.", show_default="main", rich_help_panel=VERSION),
]
Tag = Annotated[str | None, typer.Option("--tag", help="This tag.", rich_help_panel=VERSION)]
Snapshot = Annotated[
    str | None, typer.Option("--snapshot", help="The snapshot with this id.", rich_help_panel=VERSION)
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="The version that was current at this time (ISO 8601, UTC unless it says otherwise).",
        rich_help_panel=VERSION,
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="For s3://, gs://, az://, http://: endpoint_url, region, anonymous, bearer_token, …; what is "
        "not given comes from the environment.",
        rich_help_panel=VERSION,
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PREFIX",
        help="Let the repository read source files below this URL prefix; 'all' for all that it names.",
        rich_help_panel=VERSION,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Message = Annotated[str | None, typer.Option("--message", "-m", help="Message of the commit.")]
Codec = Annotated[
    list[str] | None,
    typer.Option(
        "--codec",
        "-c",
        metavar="CODEC",
        help="A codec: a name, NAME:KEY=VALUE,… or a JSON object. Repeat it for several, in their order; "
        "'raw' for none, 'auto' for what suits the data.",
    ),
]
Chunks = Annotated[
    str | None, typer.Option("--chunks", metavar="N,N,…", help="Chunk shape of the new member.")
]
Shards = Annotated[
    str | None, typer.Option("--shards", metavar="N,N,…", help="Shard shape of the new member.")
]
Packing = Annotated[
    str | None,
    typer.Option(
        "--packing",
        metavar="PACKING",
        help="How values become stored numbers: TYPE:KEY=VALUE,… or a JSON object, with scale, offset, "
        "missing, unsigned, values; 'keep' for what is there, 'none' for plain values.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Reachable:
    """Arguments of every command that works on a store: where it is, and how it is reached."""

    store: Store
    storage_option: StorageOption = None


@dataclass(frozen=True)
class Making(Reachable):
    """Arguments of commands that make a store where none is."""

    branch: Branch = None


@dataclass(frozen=True)
class Existing(Reachable):
    """Arguments of commands that need a store, and may read the files that it refers to."""

    allow: Allow = None


@dataclass(frozen=True)
class Changing(Existing):
    """Arguments of commands that change a store."""

    branch: Branch = None


@dataclass(frozen=True)
class Reading(Changing):
    """Arguments of commands that look at one version of a store."""

    tag: Tag = None
    snapshot: Snapshot = None
    as_of: AsOf = None
