"""The arguments and options that verbs share, spelled once."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "Allow",
    "Array",
    "AsOf",
    "Branch",
    "Chunks",
    "Codec",
    "Json",
    "Message",
    "Shards",
    "Snapshot",
    "StorageOption",
    "Store",
    "Tag",
]

VERSION = "Store and version"
"""Heading of the options that say how the store is reached, and which version is meant."""

Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Path or URL of an Icechunk repository (s3://, http://, file://) or of a Zarr store.",
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
        help="The newest version not younger than this time (ISO 8601, UTC unless it says otherwise).",
        rich_help_panel=VERSION,
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="For s3://: endpoint_url, region, anonymous, …; else the AWS_… environment variables count.",
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
        help="One codec, in order, repeated: a name, NAME:KEY=VALUE,… or a JSON object; 'raw' for none, "
        "'auto' for what suits the data.",
    ),
]
Chunks = Annotated[
    str | None, typer.Option("--chunks", metavar="N,N,…", help="Chunk shape of the new member.")
]
Shards = Annotated[
    str | None, typer.Option("--shards", metavar="N,N,…", help="Shard shape of the new member.")
]
