"""A polite guest: what installing, importing and using intarsia changes for plain zarr."""

import pickle
import subprocess
import sys
import textwrap

import pytest

import intarsia


def run(script, *arguments, **options):
    """Run a script in a new process, and return what it prints."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **options).stdout.decode()


def test_plain_zarr_does_not_notice_that_intarsia_is_installed():
    modules = run("""
        import sys, zarr
        def settings():
            return [zarr.config.get(key) for key in ("codec_pipeline.path", "ndbuffer", "codecs")]
        before = str(settings())
        z = zarr.create_array({}, shape=8, chunks=2, dtype="f4")
        z[:] = 1
        assert z[:].sum() == 8
        assert type(z.async_array.codec_pipeline).__module__ == "zarr.core.codec_pipeline"
        assert str(settings()) == before
        for name in ("icechunk", "zarr_indexing", "filelock"):
            assert name not in sys.modules, name
        print(*(name for name in sys.modules if name.split(".")[0] == "intarsia"))
    """).split()
    assert 0 < len(modules) <= 15, modules  # what the entry points of the data types need


WALK = """
    import sys, zarr, zarr.dtype, zarr.registry
    import numpy as np
    if sys.argv[1] == "again":  # after everything has been loaded once
        zarr.dtype.data_type_registry.get("bool")
    made = []
    for kind in zarr.dtype.data_type_registry.contents.values():
        if kind is zarr.dtype.Struct:
            made.append(kind(fields=[("a", zarr.dtype.Float64())]))
            zarr.dtype.parse_dtype(np.dtype("f8"), zarr_format=3)  # loads what is installed
        elif "length" in getattr(kind, "__dataclass_fields__", {}):
            made.append(kind(length=1))
        elif issubclass(kind, zarr.dtype.DateTime64 | zarr.dtype.TimeDelta64):
            made.append(kind(unit="s", scale_factor=10))
        else:
            made.append(kind())
    for registry in zarr.registry._codec_registries.values():
        if any(entry.value.startswith("intarsia.") for entry in registry.lazy_load_list):
            registry.lazy_load()
            assert all(isinstance(codec, type) for codec in registry.values())
    for name in ("pipeline", "buffer", "ndbuffer", "chunk_key_encoding"):
        registry = getattr(zarr.registry, f"_{name}_registry")
        registry.lazy_load()
        assert all(isinstance(kind, type) for kind in registry.values())
    optional = zarr.dtype.parse_dtype({"name": "optional", "configuration": {"name": "int8"}}, zarr_format=3)
    print(optional, len(made))
"""


@pytest.mark.parametrize("when", ["first", "again"])
def test_a_walk_over_the_registries_of_zarr_goes_on(when):
    """As zarr's own tests do: one of every data type is made, and the rest is loaded meanwhile."""
    assert run(WALK, when).startswith("optional[int8]")


def test_an_unknown_field_of_a_struct_is_refused_in_the_words_of_zarr():
    run("""
        from zarr.dtype import data_type_registry
        from zarr.errors import DataTypeValidationError
        fields = [{"name": "a", "data_type": "unheard_of"}]
        try:
            struct = {"name": "struct", "configuration": {"fields": fields}}
            data_type_registry.match_json(struct, zarr_format=3)
        except DataTypeValidationError as error:
            assert "optional" not in str(error), error
        else:
            raise AssertionError
    """)


def test_importing_intarsia_imports_nothing_else():
    modules = run("""
        import sys, intarsia
        assert "zarr" not in sys.modules and "icechunk" not in sys.modules
        print(*(name for name in sys.modules if name.split(".")[0] == "intarsia"))
    """).split()
    assert modules == ["intarsia"]


def test_a_logical_array_without_codecs_of_ours_switches_nothing():
    run("""
        import numpy as np, intarsia, zarr
        pipeline, ndbuffer = zarr.config.get("codec_pipeline.path"), zarr.config.get("ndbuffer")
        a = intarsia.create({}, "a", shape=(4, 4), chunks=(2, 2), dtype="f4")
        a.add_region(((0, 4), (0, 4)), codecs=["zstd"], data=np.ones((4, 4), "f4"))
        assert a[...].sum() == 16
        assert zarr.config.get("codec_pipeline.path") == pipeline
        assert zarr.config.get("ndbuffer") == ndbuffer
    """)


@pytest.mark.parametrize("kind", ["Batched", "Fused"])
def test_a_configuration_may_name_our_pipelines_before_any_codec_is_made(kind):
    script = """
        import sys, zarr
        zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{sys.argv[1]}Pipeline"})
        zarr.create_array({}, shape=8, chunks=2, dtype="f4")[:] = 1
    """
    run(script, kind)


@pytest.mark.parametrize(
    ("thing", "key"),
    [
        (intarsia.codecs.PackBitsCodec(), "codec_pipeline.path"),
        (intarsia.codecs.ShuffleCodec(element_size=2), "codec_pipeline.path"),
        (intarsia.nullable.optional_dtype("int8"), "ndbuffer"),
    ],
)
def test_what_comes_from_another_process_is_met_too(thing, key):
    script = """
        import pickle, sys, zarr
        pickle.load(sys.stdin.buffer)
        assert zarr.config.get(sys.argv[1]).startswith("intarsia.")
    """
    run(script, key, input=pickle.dumps(thing))


@pytest.mark.parametrize("pipeline", ["BatchedCodecPipeline", "FusedCodecPipeline"])
def test_plain_arrays_are_the_same_before_and_after(pipeline):
    """Values, stored bytes, classes and errors of plain arrays, before our codecs are met and after."""
    script = """
        import sys, warnings
        import numpy as np, zarr
        from zarr.codecs import BytesCodec, CastValue, ScaleOffset, ShardingCodec, TransposeCodec, ZstdCodec
        warnings.simplefilter("ignore")
        zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline." + sys.argv[1]})
        whole = np.random.default_rng(0).integers(0, 50, (9, 7))

        def outcome(do):
            try:
                return do()
            except Exception as error:
                return type(error).__name__, str(error)

        def seen(**options):
            store = {}
            z = zarr.create_array(store, shape=whole.shape, **options)
            data = whole.astype(z.dtype)
            z[...] = data
            z[1:4, ::2] = data[0:3, ::2]
            z.oindex[[0, 5], 1:3] = data[[1, 2], 1:3]
            z.append(data)
            z.resize((11, 7))
            reads = [
                z[...], z[3], z[3, 2], z[::2, 1:], z[..., 0], z.oindex[[0, 2], 1:], z.vindex[[0, 1], [2, 3]],
                z.blocks[0, 0], outcome(lambda: z[:, 99]),
            ]
            stored = {key: value.to_bytes() for key, value in store.items() if not key.endswith("json")}
            assert stored
            return (
                [(type(read), repr(read)) for read in reads],
                stored,
                type(z.async_array.codec_pipeline),
            )

        inner = ShardingCodec(chunk_shape=(3, 2))
        kinds = [
            dict(dtype=d, chunks=(3, 2)) for d in ("f8", "i2", "bool", "M8[ns]", ">u4", "c16", "U3", str)
        ] + [
            dict(dtype="f4", chunks=(3, 2), shards=(6, 4)),
            dict(dtype="f4", chunks=(3, 2), shards=(6, 4), compressors=[ZstdCodec(level=3)]),
            dict(dtype="i4", chunks=(6, 4), shards=(12, 8), serializer=inner, compressors=None),
            dict(dtype="f4", chunks=(3, 2), filters=[TransposeCodec(order=(1, 0))]),
            dict(dtype="i4", chunks=(3, 2), fill_value=7, zarr_format=2),
            dict(dtype="f8", chunks=(3, 2), filters=[ScaleOffset(offset=1, scale=2)]),
            dict(dtype="f8", chunks=(3, 2), filters=[CastValue(data_type="int16", rounding="nearest-even")]),
        ]
        before = [seen(**kind) for kind in kinds]

        import intarsia
        from intarsia import nullable
        conditional = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()], decision="always_apply")
        zarr.create(store={}, shape=8, dtype="u1", codecs=[BytesCodec(), conditional])[:] = 1
        assert nullable.create_array({}, data=[1, None])[:].tolist() == [1, None]
        assert zarr.config.get("codec_pipeline.path").startswith("intarsia.")
        assert zarr.config.get("ndbuffer").startswith("intarsia.")

        for kind, earlier in zip(kinds, before, strict=True):
            later = seen(**kind)
            assert later == earlier, (kind, earlier, later)
    """
    run(script, pipeline)


def test_every_public_name_is_there_for_people_and_programs():
    run("""
        import intarsia
        assert set(intarsia.__all__) <= set(dir(intarsia))
        names = {}
        exec("from intarsia import *", names)
        assert set(intarsia.__all__) <= set(names)
    """)


def test_opening_an_array_imports_what_reading_needs():
    """Each module costs a reader time: a name that drags in a room of its own shows here."""
    modules = run("""
        import sys, zarr, icechunk
        before = set(sys.modules)
        import intarsia
        intarsia.open
        print(*(name for name in sys.modules if name not in before))
    """).split()
    rooms = {name.split(".")[1] for name in modules if name.startswith("intarsia.")}
    assert not rooms & {"archives", "cli", "interop", "report", "shards", "tune", "types"}
    assert not set(modules) & {
        "concurrent.futures.process",
        "dask",
        "filelock",
        "rich",
        "xarray",
    }
    assert len(modules) <= 140, modules
