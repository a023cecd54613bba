"""Packings, with xarray as the referee: what it decodes and encodes, to the bit."""

import itertools
import warnings

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.errors import PackingError
from intarsia.manifest.packing import BLOCK, SUPPORTED_DTYPES, Packing
from intarsia.manifest.packing_columns import NO_PACKINGS, Packings

STORED = [
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f4",
    "f8",
    ">i2",
    ">i4",
    ">i8",
    ">u2",
    ">f4",
    ">f8",
]
FACTOR = [None, "f4", "f8", "float", "array f4", "array f8"]
SIGNS = [None, "true", "false", "True"]
FILLS = [None, "own", "several", "nan", "int", "float", "inf", "text"]


def to_json(packing):
    """The packing as the only one of a manifest."""
    return NO_PACKINGS.with_([packing])[0].to_json()


def from_json(document):
    return Packings.from_json(document)[0]


def decoded_by_xarray(stored, attributes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        variable = xr.Variable(("i",), stored, dict(attributes))
        return xr.conventions.decode_cf_variable("x", variable, decode_times=False).values


def encoded_by_xarray(values, stored, attributes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        variable = xr.Variable(("i",), values, {}, {"dtype": stored, **attributes})
        return xr.conventions.encode_cf_variable(variable, name="x").values


def numbers(rng, dtype, count=64):
    """Numbers of a data type: the ordinary, the ends, and for floats what is not finite."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            found = (rng.standard_normal(count) * 10.0 ** rng.integers(-10, 10, count)).astype(dtype)
        found[:7] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e20, np.finfo(dtype).max]
        return found
    limits = np.iinfo(dtype)
    small = rng.integers(max(-100, limits.min), 100, count)
    found = np.where(
        rng.random(count) < 0.5, small, rng.integers(limits.min, limits.max, count, dtype.newbyteorder("="))
    )
    found = found.astype(dtype)
    found[:4] = [limits.min, limits.max, 0, 1]
    return found


def factor(rng, kind):
    if kind is None:
        return None
    value = float(rng.choice([0.01, 0.1, 1.0, 1 / 3, 2.5, -0.5, 273.15, 1e-7, rng.standard_normal()]))
    if kind.startswith("array"):
        return np.array([value], dtype=kind.split()[1])
    return value if kind == "float" else np.dtype(kind).type(value)


def fill(rng, kind, stored):
    own = stored.dtype.newbyteorder("=").type
    some = own(rng.choice(stored[4:]))
    return {
        "own": own(rng.choice(stored[:4])),
        "several": np.array([some, own(rng.choice(stored[7:]))]),
        "nan": np.float32("nan"),
        "int": int(some) if np.isfinite(some) and abs(float(some)) < 2**63 else 7,
        "float": np.float64(some),
        "inf": np.float64("inf"),
        "text": "none",
    }[kind]


def case(rng):
    """Stored numbers and the attributes of a variable, at random."""
    stored = numbers(rng, rng.choice(STORED))
    attributes = {}
    for name in ("scale_factor", "add_offset"):
        value = factor(rng, rng.choice(FACTOR, p=[0.3, 0.25, 0.25, 0.1, 0.05, 0.05]))
        if value is not None:
            attributes[name] = value
    for name in ("_FillValue", "missing_value"):
        kind = rng.choice(FILLS, p=[0.35, 0.25, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05])
        if kind is not None and not (name == "_FillValue" and kind == "several"):
            attributes[name] = fill(rng, kind, stored)
    sign = rng.choice(SIGNS, p=[0.5, 0.2, 0.2, 0.1])
    if sign is not None:
        attributes["_Unsigned"] = str(sign)
    return stored, attributes


def same_bits(ours, theirs):
    """Whether two arrays hold the same bits; objects of xarray are compared as numbers of our type."""
    if theirs.dtype == object:
        theirs = theirs.astype("f8")
    assert ours.dtype == theirs.dtype
    raw = f"u{ours.itemsize}"
    nan = np.isnan(ours) if ours.dtype.kind == "f" else np.zeros(ours.shape, bool)
    equal = (ours.view(raw) == theirs.view(raw)) | (nan & np.isnan(theirs) if nan.any() else nan)
    return bool(equal.all())


def check_against_xarray(stored, attributes):
    """True if xarray decodes this at all."""
    native = stored.astype(stored.dtype.newbyteorder("="))
    # Where both a byte order and a sign change, xarray looks for the fill value with its bytes swapped.
    swapped = "_FillValue" in attributes and attributes.get("_Unsigned") == "true"
    try:
        theirs = decoded_by_xarray(native if swapped else stored, attributes)
    except Exception:  # xarray refuses some fill values together with _Unsigned
        return False
    if theirs.dtype == object and stored.dtype.itemsize == 8:
        return False  # Python's integers have more digits than float64
    packing = Packing.from_attributes(stored.dtype, attributes)
    ours = native if packing is None else packing.decode(stored)
    assert same_bits(ours, theirs), (packing, attributes, stored, ours, theirs)
    if packing is not None:
        assert from_json(to_json(packing)) == packing
    return True


def test_a_thousand_variables_decode_as_xarray_decodes_them():
    rng = np.random.default_rng(2024)
    decoded = sum(check_against_xarray(*case(rng)) for _ in range(1500))
    assert decoded >= 1000


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_variable_decodes_as_xarray_decodes_it(seed):
    check_against_xarray(*case(np.random.default_rng(seed)))


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_variables_of_real_files_decode_as_xarray_decodes_them(engine, tmp_path):
    """The types that attributes have once a file was written and read."""
    rng, path, options = (
        np.random.default_rng(7),
        tmp_path / "a.nc",
        {"engine": engine, "decode_times": False},
    )
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("i", 64)
        for k in range(100):
            stored, attributes = case(rng)
            fill_value = attributes.pop("_FillValue", None)
            if isinstance(fill_value, str | None):
                fill_value = False
            elif attributes.get("_Unsigned") == "true":
                stored = stored.astype(stored.dtype.newbyteorder("="))  # see check_against_xarray
            endian = "native" if stored.dtype.isnative else "big"
            with np.errstate(all="ignore"):
                fill_value = fill_value and np.asarray(fill_value).astype(stored.dtype)[()]
            variable = file.createVariable(
                f"v{k}", stored.dtype, ("i",), fill_value=fill_value, endian=endian
            )
            variable.set_auto_maskandscale(False)
            variable.setncatts(attributes)
            variable[:] = stored
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            xr.open_dataset(path, mask_and_scale=False, **options) as raw,
            xr.open_dataset(path, **options) as decoded,
        ):
            for name, variable in raw.data_vars.items():
                packing = Packing.from_attributes(variable.dtype, variable.attrs)
                ours = variable.values if packing is None else packing.decode(variable.values)
                assert same_bits(ours, decoded[name].values), (name, packing, variable.attrs)


def test_integer_scales_give_integers_as_in_xarray():
    stored = np.arange(-5, 5, dtype="i2")
    for scale in (np.int32(3), 3, np.uint8(3)):
        theirs = decoded_by_xarray(stored, {"scale_factor": scale})
        assert same_bits(Packing.from_attributes("i2", {"scale_factor": scale}).decode(stored), theirs)
    with_missing = Packing.from_attributes("i2", {"scale_factor": 3, "_FillValue": np.int16(0)})
    assert with_missing.values == np.dtype("f8")  # xarray fails


def test_values_encode_as_xarray_encodes_them():
    rng, compared = np.random.default_rng(11), 0
    for _ in range(600):
        stored, attributes = case(rng)
        attributes = {
            k: v
            for k, v in attributes.items()
            if k != "missing_value" and not isinstance(v, np.ndarray | str)
        }
        stored = stored.astype(stored.dtype.newbyteorder("="))
        if rng.random() < 0.3 and "_FillValue" in attributes and stored.dtype.kind in "iu":
            attributes["_Unsigned"] = "true" if stored.dtype.kind == "i" else "false"
        packing = Packing.from_attributes(stored.dtype, attributes)
        if (
            packing is None
            or packing.values.kind != "f"
            or ("_FillValue" in attributes and not packing.missing)
        ):
            continue
        if packing.unsigned is not None and packing.values.itemsize <= packing.stored.itemsize:
            continue  # xarray casts to a signed type first, which then has too few bits
        if packing.missing and packing.stored.itemsize == 8 and packing.stored.kind in "iu":
            continue  # xarray casts the fill value to float64, and then it is another one
        with np.errstate(all="ignore"):
            values = packing.decode(stored)
            values += (0.3 * rng.random(values.size) * abs(float(packing.scale or 1))).astype(values.dtype)
        held = np.ones(values.shape, bool)
        for k in range(values.size):
            try:
                packing.encode(values[k : k + 1])
            except PackingError:
                held[k] = False
        try:
            theirs = encoded_by_xarray(values[held], stored.dtype, attributes)
        except Exception:
            continue
        ours = packing.encode(values[held])
        assert ours.dtype == stored.dtype
        assert same_bits(ours, theirs), (packing, attributes, values[held], ours, theirs)
        compared += 1
    assert compared > 200


@pytest.mark.parametrize(
    ("packing", "values", "match"),
    [
        (
            Packing("int8", scale=0.5),
            [63.5, 64.0],
            r"cannot hold 64.0 \(at \[1\]\): values lie between -64.0 and",
        ),
        (Packing("int8", scale=0.5), [-64.3], "cannot hold -64.3"),
        (Packing("int8", scale=0.5), [np.nan], "cannot hold nan.*: no stored number means missing"),
        (Packing("int8", scale=0.5, missing=-128), [np.inf], "cannot hold inf"),
        (Packing("int8", scale=0.5, missing=-128), [-64.0], "cannot hold -64.0.*: its number means missing"),
        (Packing("int8", scale=-0.5), [64.5], "values lie between -63.5 and 64.0"),
        (Packing("int8", unsigned=True, scale=1.0), [-1.0], "values lie between 0.0 and 255.0"),
        (Packing("int64", scale=1.0), [2.0**63], "cannot hold 9.2"),
        (Packing("uint64", scale=1.0), [2.0**64], "cannot hold 1.8"),
        (Packing("float32", scale=1.0), [1e300], "cannot hold 1e\\+300"),
        (Packing("float32", missing=1e20), np.array([np.float32(1e20)]), "its number means missing"),
        (Packing("int8", scale=0.0, offset=1.0), [2.0], "cannot hold 2.0"),
        (Packing("int8", unsigned=True), [256], "cannot hold 256"),
        (Packing("int16", scale=2), [3], "cannot hold 3"),
        (Packing("int8", scale=0.5), ["text"], "not numbers"),
        (Packing("int8", scale=0.5), [[0.0, 0.0], [0.0, 1e9]], r"at \[1, 1\]"),
    ],
)
def test_values_that_a_packing_cannot_hold_are_refused_and_named(packing, values, match):
    with pytest.raises(PackingError, match=match):
        packing.encode(values)


def test_the_ends_of_a_packing_are_held():
    for name, dtype in SUPPORTED_DTYPES.items():
        if dtype.kind == "f" or dtype.itemsize == 8:
            continue
        ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        packing = Packing(name, scale=0.01, offset=5.0)
        assert packing.encode(packing.decode(ends)).tolist() == ends.tolist()


def test_the_last_64_bit_number_may_mean_missing_and_is_written_as_such():
    packing = Packing.from_attributes("i8", {"_FillValue": np.int64(2**63 - 1), "scale_factor": 0.5})
    assert packing.encode([np.nan, 1.0]).tolist() == [2**63 - 1, 2]
    odd = 2**53 + 1
    packing = Packing.from_attributes("i8", {"_FillValue": np.int64(odd)})
    assert packing.encode([np.nan]).tolist() == [odd]
    assert np.isnan(packing.decode(np.array([odd, odd - 1]))).tolist() == [True, True]  # as in xarray


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("float128",), "stored data type"),
        (("bool",), "packings support integers and floats"),
        (("U3",), "packings support integers and floats"),
        (("int8", {"scale": np.nan}), "the scale is nan"),
        (("int8", {"offset": np.inf}), "the offset is inf"),
        (("int8", {"scale": "0.1"}), "is not a number"),
        (("int8", {"scale": [0.1, 0.2]}), "is not a number"),
        (("int8", {"scale": True}), "is not a number"),
        (("int8", {"missing": 128}), "missing: 128 is not a value of int8"),
        (("int8", {"missing": 0.5}), "missing: 0.5 is not a value of int8"),
        (("int8", {"missing": "x"}), "missing: 'x' is not a value of int8"),
        (("int8", {"missing": 1, "values": "int8"}), "NaN, which int8 cannot hold"),
        (("int8", {"scale": 0.5, "values": "int8"}), "the scale: 0.5 is not a value of int8"),
        (("int8", {"scale": np.float64(0.5), "values": "int8"}), "cannot hold the result"),
        (("int8", {"unsigned": "true"}), "unsigned is 'true'"),
        (("int8", {"values": "complex64"}), "type of the values"),
    ],
)
def test_impossible_packings_are_refused(arguments, match):
    stored, options = arguments[0], arguments[1] if len(arguments) > 1 else {}
    with pytest.raises(PackingError, match=match):
        Packing(stored, **options)


def test_json_keeps_types_and_bits():
    numbers = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3]
    packings = [
        Packing("int16", scale=kind(scale), offset=kind(offset), missing=(-1, 2), values="float64")
        for kind, (scale, offset) in itertools.product(
            (np.float32, np.float64), itertools.pairwise([0.1, -0.0, 1 / 3])
        )
    ] + [Packing("float32", offset=x, missing=np.inf) for x in numbers]
    assert len(set(packings)) == len(packings)
    for packing in packings:
        again = from_json(to_json(packing))
        assert again == packing
        assert type(again.offset) is type(packing.offset)
        assert again.offset.tobytes() == packing.offset.tobytes()
    assert Packing("int8", scale=np.float32(0.5), values="f8") != Packing("int8", scale=np.float64(0.5))


GOOD = to_json(Packing("int16", scale=0.01, missing=-1))["kinds"][0]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "int16",
        {},
        GOOD | {"more": 1},
        {key: value for key, value in GOOD.items() if key != "missing"},
        *(GOOD | {"stored": junk} for junk in (None, 1, [], "int7", "<i2", "complex64", "i2")),
        *(GOOD | {"values": junk} for junk in (None, 1, [], "object", "int16")),
        *(GOOD | {"unsigned": junk} for junk in (0, 1, "true", [], False)),
        *(
            GOOD | {"missing": junk}
            for junk in (None, 1, "x", [None], [True], [1.0], [40000], ["0x00"], [[1]])
        ),
        *(GOOD | {"scale": junk} for junk in (0.01, "0x3f847ae147ae147b", [], ["float64"], "float7", "f8")),
        GOOD | {"stored": "float32", "missing": ["0x7fc00000"]},
        GOOD | {"stored": "float32", "missing": [1.5]},
    ],
)
def test_json_that_is_no_packing_is_refused(document):
    packings = to_json(Packing("int16", scale=0.01, missing=-1))
    with pytest.raises(PackingError):
        from_json(packings | {"kinds": [document]})


@pytest.mark.parametrize(
    "shape", [(), (0,), (3, 0), (BLOCK,), (BLOCK + 1,), (3, BLOCK - 1), (2, 2, BLOCK + 5), (700, 700)]
)
def test_arrays_of_any_shape_are_decoded_in_blocks(shape):
    rng = np.random.default_rng(3)
    stored = rng.integers(-3, 3, shape).astype("i2")
    packing = Packing("int16", scale=np.float32(0.1), offset=np.float32(3), missing=-1)
    expected = np.where(stored == -1, np.nan, stored.astype("f4") * np.float32(0.1) + np.float32(3))
    np.testing.assert_array_equal(packing.decode(stored), expected.astype("f4"))
    out = np.empty(shape, "f8")
    packing.decode_into(stored, out)
    np.testing.assert_array_equal(out, expected.astype("f4").astype("f8"))


def test_arrays_are_decoded_into_views_and_from_them():
    stored = np.arange(24, dtype=">i2").reshape(2, 3, 4)
    packing = Packing("int16", scale=0.5, missing=3)
    out = np.zeros((4, 3, 2))
    packing.decode_into(stored[:, ::-1], out.T[:, ::-1])
    np.testing.assert_array_equal(out.T, packing.decode(stored))


def test_numbers_of_another_type_are_not_decoded():
    with pytest.raises(PackingError, match="are int32, not int16"):
        Packing("int16", scale=0.5).decode(np.zeros(3, "i4"))


@pytest.mark.parametrize(
    "packing",
    [
        Packing("int16", scale=np.float32(0.5), offset=np.float32(2), missing=(-1, -2)),
        Packing("int8", missing=255, unsigned=True),
        Packing("uint8", scale=0.25, missing=-1, unsigned=False),
        Packing("float32", missing=-9.5),
    ],
)
def test_a_packing_is_read_from_the_attributes_that_describe_it(packing):
    assert Packing.from_attributes(packing.stored, packing.attributes) == packing
