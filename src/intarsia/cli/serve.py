"""`intarsia serve`: give logical arrays to other programs over HTTP, each as one ordinary Zarr array."""

import sys
import threading
from typing import Annotated, Any

import typer

import intarsia
from intarsia.array.hierarchy import logical_arrays
from intarsia.cli.arguments import Codec, Json, Reading, parse_codec_list, parse_sizes
from intarsia.cli.output import print_json, say, show_table
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb


@verb
def serve(
    asked: Reading,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="One array or group; everything if left out.", show_default=False
        ),
    ] = "",
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; 0.0.0.0 lets other machines read.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, show_default="8000, or any free port if that is taken"),
    ] = None,
    codec: Codec = None,
    chunks: Annotated[
        str | None,
        typer.Option("--chunks", metavar="N,N,…", help="Chunks of the served array, if PATH is an array."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            metavar="ORIGIN",
            help="A web site whose pages may read it, in browsers; '*' for all. Repeated. None if left out.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve arrays over HTTP until Ctrl-C: every logical array is one ordinary Zarr array there.

    Nothing can be written. Chunks are encoded when they are asked for, with fast zstd unless --codec says
    otherwise. Of a repository, one version is served; what is committed later does not show.

    Example: intarsia serve data/store temperature --port 8000
    """
    opened = NamedStore.find(asked).store()
    chosen: Any = parse_codec_list(codec)
    if chosen == "auto":
        raise CommandError("codec 'auto' is for data that is stored; name the codecs, or none for fast zstd")
    inside = path.strip("/")
    shown = [intarsia.open(opened, name) for name in logical_arrays(opened, inside)]
    try:
        server = intarsia.serving(
            opened,
            inside,
            host=host,
            port="auto" if port is None else port,
            codecs=chosen,
            chunks=parse_sizes(chunks, "chunks"),
            cors_origins=cors or (),
        )
    except OSError as error:
        if isinstance(error, intarsia.IntarsiaError) or error.strerror is None:
            raise
        raise CommandError(error.strerror) from error
    with server:
        names = [array.path.removeprefix(inside).strip("/") for array in shown]
        urls = [f"{server.url}/{name}".rstrip("/") for name in names]
        if as_json:
            arrays = [
                {"path": array.path, "url": url, "shape": list(array.shape), "dtype": str(array.dtype)}
                for array, url in zip(shown, urls, strict=True)
            ]
            print_json({"store": asked.store, "path": inside, "url": server.url, "arrays": arrays})
        else:
            say(f"{asked.store} {inside}".strip() + f" is served at {server.url}")
            rows = [
                (url, str(array.shape), str(array.dtype), str(array.chunks))
                for array, url in zip(shown, urls, strict=True)
            ]
            show_table(("Array", "Shape", "Data type", "Lattice"), rows)
            say("Ctrl-C ends it.")
        sys.stdout.flush()  # whoever started it waits for the address
        threading.Event().wait()
