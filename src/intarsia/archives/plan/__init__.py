"""The plan of an ingest, made before anything is written: which files fit, and what goes where.

`compatibility` and `reconcile` compare a file with the dataset, or with a declared `schema`; `axis_union`
gives every step its place, `cube` every file, and says which file wins on `overlap=`; `encodings` says
which files can share a member; `coordinates` and `attribute_merging` combine what is not data. `ingest_plan`
is all of it together; `lint_findings` are the differences found on the way.
"""
