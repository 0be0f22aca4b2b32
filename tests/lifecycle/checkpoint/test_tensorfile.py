"""Files of arrays: the safetensors library reads ours and we read its."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lifecycle.checkpoint import arrays, sums, tensorfile


def test_the_library_reads_our_files(tmp_path: Path) -> None:
    """What is written here is a valid safetensors file with the same arrays."""
    library = pytest.importorskip("safetensors.numpy")
    made: dict[str, Any] = {
        "b": np.arange(3, dtype=np.uint8),
        "a/w": np.random.default_rng(0).random((5, 2)),
    }
    tensorfile.write(tmp_path / "x", {name: arrays.leaf(a) for name, a in made.items()})
    found = library.load_file(tmp_path / "x")
    assert found.keys() == made.keys()
    assert all(np.array_equal(found[name], made[name]) for name in made)


def test_the_library_reads_bfloat16_of_torch(tmp_path: Path) -> None:
    """Types that NumPy lacks are written under their right names."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    tensor = torch.randn(7).bfloat16()
    tensorfile.write(tmp_path / "x", {"w": arrays.leaf(tensor)})
    assert torch.equal(library.load_file(tmp_path / "x")["w"], tensor)


def test_files_of_the_library_are_read(tmp_path: Path) -> None:
    """Its metadata are passed over, its arrays found."""
    library = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x"
    library.save_file({"w": np.arange(4.0)}, path, metadata={"format": "np"})
    data = path.read_bytes()
    found = tensorfile.read(path, sums.Sum(len(data), (zlib.crc32(data),)))
    assert np.frombuffer(found["w"].data).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "header",
    [
        b"no json",
        b"[]",
        json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 99]}}).encode(),
        json.dumps({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}).encode(),
        json.dumps({"w": {"dtype": "X1", "shape": [2], "data_offsets": [0, 8]}}).encode(),
        json.dumps({"w": {"shape": [2]}}).encode(),
    ],
)
def test_what_is_no_safetensors_file_is_refused(header: bytes, tmp_path: Path) -> None:
    """A header that makes no sense is an error that names the file."""
    data = len(header).to_bytes(8, "little") + header + bytes(8)
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ValueError, match="x is no safetensors file"):
        tensorfile.read(tmp_path / "x", sums.Sum(len(data), (zlib.crc32(data),)))


def test_checksums_of_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk has its checksum, wherever the writes ended; an altered one is named."""
    monkeypatch.setattr(sums, "CHUNK", 1000)
    monkeypatch.setattr(sums, "INLINE", 300)
    data = np.random.default_rng(0).bytes(4567)
    with sums.SummedFile(tmp_path / "x") as file:
        for start, stop in ((0, 10), (10, 1900), (1900, 1900), (1900, 4567)):
            file.write(data[start:stop])
        found = file.finish()
    assert found.size == 4567
    assert found.crc32 == tuple(zlib.crc32(data[i : i + 1000]) for i in range(0, 4567, 1000))
    assert bytes(sums.checked(tmp_path / "x", found)) == data
    altered = bytearray(data)
    altered[2500] ^= 1
    (tmp_path / "x").write_bytes(altered)
    with pytest.raises(ValueError, match="x is altered somewhere in its bytes 2000 to 3000"):
        sums.checked(tmp_path / "x", found)
    with pytest.raises(ValueError, match="x has 4567 bytes instead of 4568"):
        sums.checked(tmp_path / "x", found._replace(size=4568))
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ValueError, match="x lacks checksums"):
        sums.checked(tmp_path / "x", found._replace(crc32=found.crc32[:-1]))


def test_what_was_read_is_private(tmp_path: Path) -> None:
    """Writing to a loaded array does not change the file."""
    written = tensorfile.write(tmp_path / "x", {"w": arrays.leaf(np.zeros(3))})
    array = np.frombuffer(tensorfile.read(tmp_path / "x", written)["w"].data)
    array[:] = 7
    again = np.frombuffer(tensorfile.read(tmp_path / "x", written)["w"].data)
    assert again.tolist() == [0, 0, 0]
