"""Attributes that differ between files: what xarray makes of them, in one ingest or many."""

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import IngestError
from tests.archives.plan.test_reconcile import FORMATS, save
from tests.grids import spread

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

ATTRS = (
    {"title": "a", "by": "x", "version": np.float64("nan")},
    {"title": "b", "by": "x", "version": np.float64("nan"), "range": np.array([1, 2])},
    {"title": "a", "by": "x", "version": np.float64("nan"), "range": np.array([1, 3])},
    {"range": np.array([1, 2])},
)


def day(i, attrs):
    """A file whose attributes are those of everything in it."""
    data = ("time", "x"), np.full((1, 3), i, "f4"), {"units": "K", **attrs}
    coords = {
        "time": ("time", [i], {"units": "days since 2000-01-01", **attrs}),
        "x": ("x", np.arange(3.0), {"units": "m", **attrs}),
    }
    return xr.Dataset({"v": data}, coords, attrs)


def written(folder, form="netcdf4", attrs=ATTRS):
    return [save(day(i, each), folder / str(i), form) for i, each in enumerate(attrs)]


def found(repo, path=""):
    ds = xr.open_dataset(repo, engine="intarsia", decode_times=False)
    assert ds.v.attrs["units"] == "K"
    assert ds.time.attrs["units"] == "days since 2000-01-01"
    assert ds.v.values[:, 0].tolist() == list(range(ds.sizes["time"]))
    everything = [
        ds.attrs,
        *({k: v for k, v in ds[n].attrs.items() if k != "units"} for n in ("v", "time", "x")),
    ]
    for each in everything[1:]:
        np.testing.assert_equal(each, everything[0])
    return everything[0]


def by_xarray(attrs, word):
    parts = [xr.Dataset({"v": ("x", [i])}, attrs=each) for i, each in enumerate(attrs)]
    return {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in xr.concat(parts, "x", combine_attrs=word).attrs.items()
    }


def in_portions(paths, order, **options):
    repo = "memory://"
    for i in order:
        repo = intarsia.ingest(paths[i], repo, concat_dim="time", **options).repository
    return repo


@pytest.mark.parametrize(("word", "form"), spread(["override", "drop", "drop_conflicts"], FORMATS))
def test_attributes_are_what_xarray_makes_of_them_in_one_ingest_or_many(tmp_path, word, form):
    paths = written(tmp_path, form)
    expected = by_xarray(ATTRS, word)
    options = {"combine_attrs": word}
    np.testing.assert_equal(
        found(intarsia.ingest(paths, "memory://", concat_dim="time", **options).repository), expected
    )
    np.testing.assert_equal(found(in_portions(paths, (0, 1, 2, 3), **options)), expected)
    if word in ("drop", "drop_conflicts"):
        np.testing.assert_equal(found(in_portions(paths, (3, 1, 0, 2), **options)), expected)


def test_attributes_that_do_not_contradict_are_united(tmp_path):
    attrs = [{"a": 1}, {"b": 2.5}, {"a": 1, "c": "x"}, {"a": 2}]
    paths = written(tmp_path, attrs=attrs)
    options = {"combine_attrs": "no_conflicts"}
    for repo in (
        intarsia.ingest(paths[:3], "memory://", concat_dim="time", **options).repository,
        in_portions(paths, (0, 1, 2), **options),
    ):
        assert found(repo) == by_xarray(attrs[:3], "no_conflicts") == {"a": 1, "b": 2.5, "c": "x"}
        words = r"3\.nc: its attributes differ: attribute 'a' is 2, but 1 in .* \(combine_attrs='drop_conf"
        with pytest.raises(IngestError, match=words):
            intarsia.ingest(paths[3], repo, concat_dim="time", **options)
    report = intarsia.ingest(paths, "memory://", concat_dim="time", errors="skip", **options)
    assert [file.status for file in report.files] == ["added"] * 3 + ["failed"]


def test_attributes_that_are_to_be_identical_are_compared(tmp_path):
    attrs = [{"a": np.nan, "b": "x"}, {"b": "x", "a": np.nan}, {"b": "x"}]
    paths = written(tmp_path, attrs=attrs)
    repo = in_portions(paths, (0, 1), combine_attrs="identical")
    np.testing.assert_equal(found(repo), {"a": np.nan, "b": "x"})
    with pytest.raises(IngestError, match="attribute 'a' is absent, but nan in the dataset"):
        intarsia.ingest(paths[2], repo, concat_dim="time", combine_attrs="identical")


def test_a_rule_that_nobody_knows_is_refused(tmp_path):
    paths = written(tmp_path)
    with pytest.raises(IngestError, match="combine_attrs='merge' is not one of 'override', 'drop'"):
        intarsia.ingest(paths, "memory://", concat_dim="time", combine_attrs="merge")


def test_what_the_dataset_says_by_itself_stays(tmp_path):
    paths = written(tmp_path)
    report = intarsia.ingest(paths[:2], "memory://", concat_dim="time")
    intarsia.ingest(paths[2:], report.repository, concat_dim="time")
    assert found(report.repository)["title"] == "a"
