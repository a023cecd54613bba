"""`intarsia info`: what an array is, and how much of it is stored in which way."""

from intarsia.cli.arguments import Array, Json, Reading
from intarsia.cli.output import print_json, say, show_facts, show_table, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import verb
from intarsia.report.drawing import COLOURS
from intarsia.report.survey import survey
from intarsia.words import PIPELINE_COLUMNS, ratio_text, size_text


@verb
def info(
    asked: Reading,
    array: Array = "",
    as_json: Json = False,
) -> None:
    """Show what an array is: shape, data type, regions, and how much each codec pipeline stores.

    Example: intarsia info data/store temperature --as-of 2024-05-01
    """
    opened = NamedStore.find(asked).open(array)
    with waiting("measuring stored chunks", counted=False):
        seen = survey(opened)
    pipelines = seen.pipelines()
    if as_json:
        print_json(
            {
                "store": asked.store,
                "path": opened.path,
                "shape": list(opened.shape),
                "dtype": str(opened.dtype),
                "chunks": list(opened.chunks),
                "fill_value": str(opened.fill_value),
                "dimension_names": None if opened.dimension_names is None else list(opened.dimension_names),
                "regions": len(seen),
                "members": len(seen.facts),
                "generation": opened.generation,
                "nbytes": opened.nbytes,
                "nbytes_stored": seen.total_stored,
                "nbytes_not_shown": seen.total_unused,
                "pipelines": [
                    {
                        "codecs": pipeline.label,
                        "regions": pipeline.regions,
                        "nbytes": pipeline.nbytes,
                        "nbytes_stored": pipeline.stored,
                    }
                    for pipeline in pipelines
                ],
                "problems": list(seen.problems),
            }
        )
        return
    unused = [("Stored, not shown", size_text(seen.total_unused))] if seen.total_unused else []
    stored = ("Stored", size_text(seen.total_stored))
    ratio = ("Ratio", ratio_text(seen.total_nbytes, seen.total_stored))
    show_facts([*opened.info.fields, stored, ratio, *unused])
    if pipelines:
        say("")
        rows = [pipeline.cells() for pipeline in pipelines]
        show_table(PIPELINE_COLUMNS, rows, colours={0: [COLOURS[p.place] for p in pipelines]})
    say(*seen.problems)
