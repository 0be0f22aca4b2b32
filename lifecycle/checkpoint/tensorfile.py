"""Files in the safetensors format: a header in JSON, then the bytes of the arrays.

Written and read here rather than by the safetensors library, whose files these are: that
one holds the interpreter while it reads, 1.5 to 2.5 times as long as the bytes take, and
copies all arrays once more when it writes (before its version 0.8). The tests hold the
two against each other.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lifecycle.checkpoint.arrays import NAMES
from lifecycle.checkpoint.sums import SummedFile, checked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lifecycle.checkpoint.arrays import Leaf
    from lifecycle.checkpoint.sums import Sum

__all__ = ["Stored", "read", "write"]

ALIGNMENT: Final = 64
"""Where the first array begins is a multiple of this; larger elements come first."""

CODES: Final = {code: name for name, code in NAMES.items()}

SIZES: Final = {
    code: int("".join(filter(str.isdigit, code.partition("_")[0])) or 8) // 8 for code in CODES
}


class Stored(NamedTuple):
    """An array in a file."""

    data: memoryview
    dtype: str
    """What the file calls its element type."""

    shape: tuple[int, ...]


def write(path: Path, leaves: Mapping[str, Leaf]) -> Sum:
    """Write arrays into a new file and have it on the disk.

    An array of a type that the format lacks is written as its bytes.

    Raises:
        OSError: it cannot be written.
    """
    names = sorted(leaves, key=lambda name: -_element(leaves[name]))
    header: dict[str, Any] = {}
    end = 0
    for name in names:
        start, end = end, end + leaves[name].data.nbytes
        header[name] = {**_entry(leaves[name]), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with SummedFile(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(leaves[name].data)
        return file.finish()


def _entry(leaf: Leaf) -> dict[str, Any]:
    if leaf.dtype in NAMES:
        return {"dtype": NAMES[leaf.dtype], "shape": list(leaf.shape)}
    return {"dtype": "U8", "shape": [leaf.data.nbytes]}


def _element(leaf: Leaf) -> int:
    """Return the bytes of one element, a power of two where the alignment matters."""
    return leaf.data.nbytes // max(math.prod(leaf.shape), 1)


def read(path: Path, expected: Sum) -> dict[str, Stored]:
    """Return the arrays of a file that is what its checksums say.

    Raises:
        ValueError: it is not, or not in the safetensors format.
        OSError: it cannot be read.
    """
    content = checked(path, expected)
    length = int.from_bytes(content[:8], "little")
    data = content[8 + length :]
    try:
        header = json.loads(bytes(content[8 : 8 + length]))
        return {
            name: _stored(data, entry) for name, entry in header.items() if name != "__metadata__"
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path.name} is no safetensors file: {error}") from error


def _stored(data: memoryview, entry: Mapping[str, Any]) -> Stored:
    start, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    code = entry["dtype"]
    if not 0 <= start <= end <= len(data) or end - start != math.prod(shape) * SIZES[code]:
        raise ValueError(f"{shape} elements of {code} do not lie from {start} to {end}")
    return Stored(data[start:end], CODES[code], shape)
