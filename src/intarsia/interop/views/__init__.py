"""Logical arrays as other programs see them: one Zarr array, a store of them, in TensorStore."""
