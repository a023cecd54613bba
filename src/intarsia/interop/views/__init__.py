"""Logical arrays as other programs see them: as one Zarr array, as a store of them, in TensorStore."""
