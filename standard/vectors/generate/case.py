"""A vector: the files of a Zarr node, and what a reader has to make of them."""

import base64
import json
from dataclasses import dataclass, field

import numpy as np
from standard.vectors.generate.encode import Encoder, chunks_of, dtype_of

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
BYTES = {"name": "bytes"}
CRC = {"name": "crc32c"}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


def transposed(*order):
    return {"name": "transpose", "configuration": {"order": list(order)}}


def reshaped(*shape):
    return {"name": "reshape", "configuration": {"shape": list(shape)}}


def sharded(chunk_shape, codecs, location="end", index_codecs=(LITTLE, CRC)):
    configuration = {"chunk_shape": list(chunk_shape), "codecs": codecs, "index_codecs": list(index_codecs)}
    return {"name": "sharding_indexed", "configuration": {**configuration, "index_location": location}}


@dataclass
class Case:
    """One vector, before it is written."""

    path: str
    """Family and name."""

    about: str
    """What it shows."""

    kind: str
    """`array` or `logical`."""

    files: dict[str, bytes]
    """The Zarr node, by path."""

    data_type: object = None
    expected: np.ndarray | None = None
    """The values; None where a reader has to refuse."""

    refused: tuple[str, str] | None = None
    """Who can tell (`schema`, `metadata`, `member` or `chunk`), and the reason."""

    notes: dict = field(default_factory=dict)

    @property
    def family(self):
        return self.path.split("/")[0]

    def entry(self):
        """What the document of its family says of it."""
        found = {"name": self.path.split("/")[1], "kind": self.kind, "about": self.about}
        if self.refused:
            level, reason = self.refused
            found["refused"] = {"by": level, "reason": reason}
        found["files"] = {name: packed(name, content) for name, content in self.files.items()}
        if self.expected is not None:
            found["expected"] = expectation(self.data_type, self.expected)
        return found


WIDTH = 118
"""Of the lines in the documents of families."""


def packed(name, content):
    """A file in JSON: metadata as it is, and other bytes in base64, in several lines where they are many."""
    if name.split("/")[-1] == "zarr.json":
        assert document(json.loads(content)) == content, f"{name} is not in the form that readers restore"
        return json.loads(content)
    text = base64.b64encode(content).decode()
    lines = [text[at : at + 100] for at in range(0, len(text), 100)]
    return lines if len(lines) > 1 else text


def laid_out(content, indent=0, taken=0):
    """JSON in lines of about `WIDTH`; `taken` characters stand before it on its first line."""
    line = json.dumps(content)
    if taken + len(line) <= WIDTH or not isinstance(content, dict | list) or not content:
        return line
    inner = " " * (indent + 2)
    if isinstance(content, dict):
        fields = ((json.dumps(key) + ": ", value) for key, value in content.items())
        parts = [key + laid_out(value, indent + 2, indent + len(key) + 3) for key, value in fields]
        joined = f",\n{inner}".join(parts)
    elif any(isinstance(value, dict) for value in content):
        joined = f",\n{inner}".join(laid_out(value, indent + 2, indent + 3) for value in content)
    else:  # numbers and texts: as many on a line as there is room for
        lines = [""]
        for value in map(json.dumps, content):
            if lines[-1] and len(inner) + len(lines[-1]) + len(value) + 2 > WIDTH:
                lines.append("")
            lines[-1] += f"{value}, "
        joined = f"\n{inner}".join(each.rstrip() for each in lines).rstrip(",")
    first, last = "{}" if isinstance(content, dict) else "[]"
    return f"{first}\n{inner}{joined}\n{' ' * indent}{last}"


def document(content):
    """A JSON document with a line for every field at the top."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    return f"{{\n{lines}\n}}\n".encode()


def without_notes(codecs):
    """Codec objects as zarr.json has them."""
    if isinstance(codecs, list):
        return [without_notes(codec) for codec in codecs]
    if isinstance(codecs, dict):
        return {key: without_notes(value) for key, value in codecs.items() if not key.startswith("_")}
    return codecs


def json_value(value):
    """A value as in a fill_value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [json_value(v) for v in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        names = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
        return "NaN" if value != value else names.get(value, value)
    return value


def expectation(data_type, values):
    """What a reader has to find, as JSON."""
    flat = values.reshape(-1)
    listed = [json_value(flat[i]) for i in range(flat.size)]
    return {"data_type": data_type, "shape": list(values.shape), "values": listed}


def array_files(values, data_type, codecs, chunks, *, fill_value=0, skip=(), shape=None, **more):
    """The files of one array; `skip` names chunks that are not stored."""
    values = np.asarray(values, dtype=dtype_of(data_type))
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(values.shape if shape is None else shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": json_value(fill_value),
        "codecs": without_notes(codecs),
        "attributes": {},
    } | more
    files = {"zarr.json": document(metadata)}
    fill = fill_value
    if isinstance(fill_value, str) and data_type != "string":
        fill = 0  # edges are cut off anyway
    encoder = Encoder(fill)
    for cell, chunk in chunks_of(values, chunks, fill):
        if cell not in skip:
            files["/".join(map(str, ("c", *cell)))] = encoder.chunk(chunk, data_type, codecs)
    return files


def edited(files, change, name="zarr.json"):
    """Files with another metadata document: `change` gets it, and may return another."""
    content = json.loads(files[name])
    content = change(content) or content
    return files | {name: document(content)}


def array(path, about, values, data_type, codecs, chunks, **options):
    """A vector of one array that can be read."""
    values = np.asarray(values, dtype=dtype_of(data_type))
    expected = options.pop("expected", values)
    files = array_files(values, data_type, codecs, chunks, **options)
    return Case(path, about, "array", files, data_type, np.asarray(expected, dtype=values.dtype))


def refused(case, path, about, level, change=None, **chunks):
    """The array of another vector with something wrong in it: in its metadata, or in chunks (`c_0_1=…`)."""
    files = dict(case.files) if change is None else edited(case.files, change)
    for name, content in chunks.items():
        key = name.replace("_", "/")
        files[key] = content(files[key]) if callable(content) else content
    return Case(path, about, case.kind, files, refused=(level, about))


def configured(at=-1, **fields):
    """A change of the configuration of one codec; None takes a field away."""

    def change(metadata):
        configuration = metadata["codecs"][at].setdefault("configuration", {})
        for name, value in fields.items():
            if value is None:
                del configuration[name]
            else:
                configuration[name] = value

    return change


def numbers(shape, dtype):
    """Values without a pattern to speak of, always the same."""
    count = int(np.prod(shape, dtype=int))
    values = (np.arange(count, dtype=np.int64) * 37 + 11) % 101
    return (values - 50 if np.dtype(dtype).kind in "if" else values).astype(dtype).reshape(shape)
