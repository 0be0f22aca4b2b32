"""Weights from plain files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402

from lifecycle.torch import load_weights  # noqa: E402


def model(outputs: int = 3) -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, outputs))


def same(one: Any, other: Any) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_what_torch_saved(tmp_path: Path, wrapper: str | None, prefix: str) -> None:
    """A state_dict, one inside a training checkpoint, one of a parallel wrapper."""
    one, other = model(), model()
    state: Any = {prefix + key: value for key, value in one.state_dict().items()}
    torch.save({wrapper: state, "epoch": 3} if wrapper else state, tmp_path / "weights.pth")
    assert not load_weights(other, tmp_path / "weights.pth")
    assert same(one, other)


def test_safetensors(tmp_path: Path) -> None:
    """A file of safetensors."""
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    one, other = model(), model()
    safetensors.save_file(one.state_dict(), tmp_path / "weights.safetensors")
    load_weights(other, tmp_path / "weights.safetensors")
    assert same(one, other)


def test_a_part_of_a_larger_model(tmp_path: Path) -> None:
    """With a prefix, what begins so is loaded without it."""
    one, other = nn.ModuleDict({"backbone": model(), "head": nn.Linear(1, 1)}), model()
    torch.save(one.state_dict(), tmp_path / "weights.pth")
    load_weights(other, tmp_path / "weights.pth", prefix="backbone.")
    assert same(one["backbone"], other)


def test_differences_are_listed(tmp_path: Path) -> None:
    """Strictly, any difference is an error and nothing is loaded; leniently, what fits is."""
    one, other = model(), model(5)
    state = one.state_dict()
    del state["0.bias"]
    state["extra"] = torch.zeros(1)
    torch.save(state, tmp_path / "weights.pth")
    before = other[0].weight.clone()
    with pytest.raises(
        ValueError, match=r"missing 0\.bias; unexpected extra; mismatched 2\.weight"
    ):
        load_weights(other, tmp_path / "weights.pth")
    assert torch.equal(other[0].weight, before)
    found = load_weights(other, tmp_path / "weights.pth", strict=False)
    assert found.missing == ("0.bias",)
    assert found.unexpected == ("extra",)
    assert found.mismatched == (
        "2.weight ((3, 8) in the file, (5, 8) in the model)",
        "2.bias ((3,) in the file, (5,) in the model)",
    )
    assert torch.equal(other[0].weight, one[0].weight)


class Evil:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code of the file has run",))


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    """A file whose loading would run code is refused, and so is one without weights."""
    torch.save({"state_dict": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match="would run code"):
        load_weights(model(), tmp_path / "evil.pth")
    (tmp_path / "evil2.pth").write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(ValueError, match="would run code"):
        load_weights(model(), tmp_path / "evil2.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="holds no weights"):
        load_weights(model(), tmp_path / "list.pth")
