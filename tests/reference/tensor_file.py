"""safetensors files as dictionaries of numpy arrays, BF16 and FP8 included (ml_dtypes), in reproducible bytes.

The safetensors package has no numpy type for BF16 and FP8, and its raw interface changes between versions; the format
is an 8-byte header length, a JSON header and the tensors' bytes.
"""

import json
import struct

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)

_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "BF16": BF16,
    "F8_E4M3": E4M3,
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "U8": np.dtype(np.uint8),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def load(path):
    """Every tensor of the file, by name."""
    with open(path, "rb") as f:
        data = f.read()
    (header_bytes,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + header_bytes])
    header.pop("__metadata__", None)
    tensors = {}
    for name, item in header.items():
        begin, end = (8 + header_bytes + offset for offset in item["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], dtype=_DTYPES[item["dtype"]]).reshape(item["shape"]).copy()
    return tensors


def save(path, tensors):
    """Writes the arrays, widest elements first so that each stays aligned, then by name."""
    header, parts, offset = {}, [], 0
    for name in sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n)):
        array = np.ascontiguousarray(tensors[name])
        parts.append(array.tobytes())
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
