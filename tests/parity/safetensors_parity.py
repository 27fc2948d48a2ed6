"""Our safetensors beside the reference's: what it writes loads here, and what is written here loads there, bit for bit,
every element type, tensors without dimensions and without elements; what one refuses, the other does.

    PYTHON safetensors_parity.py COPY_PROGRAM

PYTHON must have the package safetensors (tests/parity/setup.sh installs it); without it the test is skipped, and says so.
"""
import ctypes
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import packages

safetensors = packages.require("safetensors")

# As the reference's writer and its files call them, and bytes an element.
TYPES = {"bool": ("BOOL", 1), "uint8": ("U8", 1), "int8": ("I8", 1), "float8_e4m3fn": ("F8_E4M3", 1),
         "float8_e5m2": ("F8_E5M2", 1), "int16": ("I16", 2), "uint16": ("U16", 2), "float16": ("F16", 2),
         "bfloat16": ("BF16", 2), "int32": ("I32", 4), "uint32": ("U32", 4), "float32": ("F32", 4), "float64": ("F64", 8),
         "int64": ("I64", 8), "uint64": ("U64", 8)}
SHAPES = [[], [1], [0], [7], [2, 3], [3, 0, 2], [1, 1, 1, 1, 1], [5, 4, 3]]


def elements(shape: list[int]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def copied(program: str, data: bytes) -> tuple[bytes | None, str]:
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/in", "wb") as f:
            f.write(data)
        done = subprocess.run([program, f"{folder}/in", f"{folder}/out"], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"FAILED: {program} ended with {done.returncode}: {done.stderr}")
        if done.returncode == 1:
            return None, done.stderr
        with open(f"{folder}/out", "rb") as f:
            return f.read(), ""


def header_of(data: bytes) -> dict:
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])


def contents(data: bytes) -> dict:
    return {name: (t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in safetensors.deserialize(data)}


def serialized(tensors: dict, metadata: dict | None = None) -> bytes:
    """By the reference, which takes addresses."""
    held = {name: ctypes.create_string_buffer(t["data"], max(1, len(t["data"]))) for name, t in tensors.items()}
    specs = {name: safetensors.TensorSpec(dtype=t["dtype"], shape=t["shape"], data_ptr=ctypes.addressof(held[name]),
                                          data_len=len(t["data"])) for name, t in tensors.items()}
    return bytes(safetensors.serialize(specs, metadata))


def check_both_ways(program: str) -> int:
    made = random.Random(1)
    tensors = {f"{kind} {shape}": {"dtype": kind, "shape": shape, "data": made.randbytes(elements(shape) * size)}
               for kind, (_, size) in TYPES.items() for shape in SHAPES}
    for metadata in (None, {}, {"format": "pt", "\u00e9 \"quoted\"\n": "\\ \U0001f600"}):
        theirs = serialized(tensors, metadata)
        ours, why = copied(program, theirs)
        if ours is None:
            sys.exit(f"FAILED: the reference's file is refused: {why}")
        assert contents(ours) == contents(theirs), "tensors differ"
        assert (header_of(ours).get("__metadata__") or None) == (metadata or None), "metadata differ"
        for name, t in tensors.items():
            assert contents(ours)[name] == (TYPES[t["dtype"]][0], t["shape"], t["data"]), name
        assert struct.unpack("<Q", ours[:8])[0] % 8 == 0, "the data is not aligned"
    empty, _ = copied(program, serialized({}))
    assert empty is not None and contents(empty) == {}, "a file without tensors"
    return len(tensors)


def file_of(header: dict | str, data: bytes = b"") -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(kind: str, shape: list, begin: int, end: int) -> dict:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def check_refusals(program: str) -> int:
    good = {"a": tensor("U8", [4], 0, 4)}
    broken = {
        "overlap": file_of({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 2, 6)}, bytes(6)),
        "gap": file_of({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [1], 5, 6)}, bytes(6)),
        "hole at the beginning": file_of({"a": tensor("U8", [4], 1, 5)}, bytes(5)),
        "data too long": file_of(good, bytes(5)),
        "data too short": file_of(good, bytes(3)),
        "wrong size": file_of({"a": tensor("F32", [4], 0, 4)}, bytes(4)),
        "backwards": file_of({"a": tensor("U8", [4], 4, 0)}, bytes(4)),
        "overflow": file_of({"a": tensor("U8", [1 << 40, 1 << 40], 0, 0)}),
        "unknown type": file_of({"a": tensor("F7", [4], 0, 4)}, bytes(4)),
        "negative shape": file_of({"a": tensor("U8", [-4], 0, 4)}, bytes(4)),
        "fraction": file_of({"a": tensor("U8", [4.5], 0, 4)}, bytes(4)),
        "no JSON": file_of("{"),
        "no object": file_of("[]"),
        "something behind": file_of(json.dumps(good) + "{}", bytes(4)),
        "metadata of numbers": file_of({"__metadata__": {"a": 1}}),
        "header beyond the file": struct.pack("<Q", 100) + b"{}",
        "huge header": struct.pack("<Q", (1 << 64) - 1) + b"{}",
        "no header": b"1234567",
    }
    for name, data in broken.items():
        try:
            safetensors.deserialize(data)
            sys.exit(f"FAILED: {name}: the reference reads it")
        except safetensors.SafetensorError:
            pass
        if copied(program, data)[0] is not None:
            sys.exit(f"FAILED: {name}: we read what the reference refuses")
    return len(broken)


def main() -> int:
    both = check_both_ways(sys.argv[1])
    refused = check_refusals(sys.argv[1])
    print(f"{both} tensors both ways, {refused} broken files refused by both; safetensors {safetensors.__version__}, {os.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
