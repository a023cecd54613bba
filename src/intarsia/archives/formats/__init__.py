"""One file a format: `recognise` says from the beginning of a source whether it has the format.

A `Format` opens a group of a source. HDF5 and TIFF are read here, by h5py and tifffile; the others are
parsers in the form of VirtualiZarr's, in a `VirtualFormat`. To add one, add a file, and its module to
`parse.FORMATS`.
"""
