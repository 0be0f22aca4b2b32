"""Train an object detector in the shape of mmdetection's recipe, on pictures of shapes.

A small anchor-free detector finds circles, squares and triangles in generated pictures.
Its backbone has a learning rate of its own and a stage that is frozen at first; the learning
rate warms up and falls in steps; gradients are clipped; the moving average of the weights is
what is evaluated, by COCO's mean average precision; the best and the last checkpoint are
kept.

    python examples/detector.py --output runs/detector
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from lifecycle import CSVLogger, Loop
from lifecycle.checkpoint import Checkpoint
from lifecycle.subscribers import History
from lifecycle.torch import EMA, Collected, FreezeUntil, LRSchedule, Step, TorchStep, WarmUp

KINDS = ("circle", "square", "triangle")
SIZE, STRIDE = 64, 4

Target = dict[str, torch.Tensor]


# The data.


class Shapes(Dataset[tuple[torch.Tensor, Target]]):
    """Pictures of one to four shapes, the same for a seed each time."""

    def __init__(self, count: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.pictures = [picture(random) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Target]:
        return self.pictures[index]


def picture(random: torch.Generator) -> tuple[torch.Tensor, Target]:
    """Draw shapes that do not overlap much, and return them with their boxes."""
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    image = 0.15 * torch.rand(3, SIZE, SIZE, generator=random) + 0.2 * torch.rand(
        3, 1, 1, generator=random
    )
    boxes: list[list[float]] = []
    labels: list[int] = []
    for _ in range(int(torch.randint(1, 5, (1,), generator=random))):
        side = int(torch.randint(10, 27, (1,), generator=random))
        left, top = torch.randint(0, SIZE - side, (2,), generator=random).tolist()
        if any(overlaps([left, top, left + side, top + side], box) for box in boxes):
            continue
        kind = int(torch.randint(0, len(KINDS), (1,), generator=random))
        x, y = (columns - left + 0.5) / side, (rows - top + 0.5) / side
        inside = (x > 0) & (x < 1) & (y > 0) & (y < 1)
        if kind == 0:
            inside &= (x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.25
        elif kind == 2:
            inside &= (x - 0.5).abs() < y / 2
        color = 0.4 + 0.6 * torch.rand(3, 1, generator=random)
        image[:, inside] = color
        boxes.append([left, top, left + side, top + side])
        labels.append(kind)
    return image, {"boxes": torch.tensor(boxes).float(), "labels": torch.tensor(labels)}


def overlaps(one: list[float], other: list[float]) -> bool:
    """Say whether two boxes have more than a little in common."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width > 3 and height > 3


def collate(batch: list[tuple[torch.Tensor, Target]]) -> tuple[torch.Tensor, list[Target]]:
    """Stack the pictures, and list their targets."""
    return torch.stack([image for image, _ in batch]), [target for _, target in batch]


# The detector.


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution with batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Backbone(nn.Module):
    """Features of two scales: at a fourth and at an eighth of the size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = block(3, 16, 2)
        self.stage1 = nn.Sequential(block(16, 32, 2), block(32, 32))
        self.stage2 = nn.Sequential(block(32, 64, 2), block(64, 64), block(64, 64))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the finer and the coarser features."""
        fine = self.stage1(self.stem(images))
        return fine, self.stage2(fine)


class Detector(nn.Module):
    """Says for each cell whether a shape's centre is there, and how far its sides are.

    In training it returns its losses; in evaluation the boxes, scores and labels that it finds
    in each picture.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.lateral = nn.Conv2d(32, 64, 1)
        self.neck = block(64, 64)
        self.heat = nn.Conv2d(64, len(KINDS), 1)
        self.sides = nn.Conv2d(64, 4, 1)
        assert self.heat.bias is not None
        nn.init.constant_(self.heat.bias, -math.log(99))  # most cells are empty

    def forward(
        self, images: torch.Tensor, targets: list[Target] | None = None
    ) -> dict[str, torch.Tensor] | list[Target]:
        """Return losses, or what is found."""
        fine, coarse = self.backbone(images)
        features = self.neck(self.lateral(fine) + functional.interpolate(coarse, scale_factor=2))
        heat, sides = self.heat(features), functional.softplus(self.sides(features))
        if self.training:
            assert targets is not None
            return losses(heat, sides, targets)
        return [found(*each) for each in zip(heat.sigmoid(), sides, strict=True)]


def centres(cells: int) -> torch.Tensor:
    """Return the middle of each cell along one side, in pixels."""
    return (torch.arange(cells) + 0.5) * STRIDE


def losses(
    heat: torch.Tensor, sides: torch.Tensor, targets: list[Target]
) -> dict[str, torch.Tensor]:
    """Compare what the detector says with what is there: a focal loss, and an L1 of sides."""
    wanted = torch.zeros_like(heat)
    middle = centres(heat.shape[-1])
    box_loss = heat.new_zeros(())
    objects = sum(len(target["labels"]) for target in targets)
    for index, target in enumerate(targets):
        for box, label in zip(target["boxes"], target["labels"].tolist(), strict=True):
            center, size = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
            spread = (size.min() / 6) ** 2
            across = torch.exp(-((middle - center[0]) ** 2) / (2 * spread))
            down = torch.exp(-((middle - center[1]) ** 2) / (2 * spread))
            peak = down[:, None] * across[None]
            column, row = (center / STRIDE).long().clamp(max=len(middle) - 1).tolist()
            peak[row, column] = 1
            wanted[index, label] = torch.maximum(wanted[index, label], peak)
            near = peak > 0.5
            box_loss = box_loss + (distances(box, middle) - sides[index])[:, near].abs().mean()
    chance = heat.sigmoid().clamp(1e-4, 1 - 1e-4)
    there = wanted == 1
    right = (1 - chance) ** 2 * chance.log() * there
    wrong = (1 - wanted) ** 4 * chance**2 * (1 - chance).log() * ~there
    return {"loss_heat": -(right + wrong).sum() / objects, "loss_box": box_loss / objects}


def distances(box: torch.Tensor, middle: torch.Tensor) -> torch.Tensor:
    """Return how far a box's left, top, right and bottom are from each cell, in cells."""
    shape = (len(middle), len(middle))
    left, right = (middle - box[0]).expand(shape), (box[2] - middle).expand(shape)
    top, bottom = (middle - box[1]).expand(shape).T, (box[3] - middle).expand(shape).T
    return torch.stack([left, top, right, bottom]).clamp(min=0) / STRIDE


def found(heat: torch.Tensor, sides: torch.Tensor, limit: int = 20) -> Target:
    """Return the boxes around the peaks of one picture."""
    peaks = heat * (functional.max_pool2d(heat, 3, 1, 1) == heat)
    scores, places = peaks.flatten().topk(limit)
    cells = heat.shape[-1]
    labels, place = places // cells**2, places % cells**2
    row, column = place // cells, place % cells
    middle = centres(cells)
    left, top, right, bottom = sides[:, row, column] * STRIDE
    x, y = middle[column], middle[row]
    boxes = torch.stack([x - left, y - top, x + right, y + bottom], 1)
    return {"boxes": boxes, "scores": scores, "labels": labels}


# How well it does.


def coco_map(outputs: list[list[Target]], targets: list[list[Target]]) -> dict[str, float]:
    """Return COCO's mean average precision: over its thresholds, and at half an overlap."""
    truth = [target for batch in targets for target in batch]
    annotations = [
        {"id": 0, "image_id": image, "category_id": label, "bbox": box, "area": box[2] * box[3]}
        for image, target in enumerate(truth)
        for box, label in zip(corners(target), target["labels"].tolist(), strict=True)
    ]
    for number, annotation in enumerate(annotations):
        annotation |= {"id": number + 1, "iscrowd": 0}
    results = [
        {"image_id": image, "category_id": label, "bbox": box, "score": score}
        for image, output in enumerate(one for batch in outputs for one in batch)
        for box, label, score in zip(
            corners(output), output["labels"].tolist(), output["scores"].tolist(), strict=True
        )
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "info": {},
            "images": [{"id": image} for image in range(len(truth))],
            "categories": [{"id": label} for label in range(len(KINDS))],
            "annotations": annotations,
        }
        coco.createIndex()
        judge = COCOeval(coco, coco.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return {"map": float(judge.stats[0]), "map_50": float(judge.stats[1])}


def corners(target: Target) -> list[list[float]]:
    """Return boxes as COCO has them: left, top, width, height."""
    boxes = target["boxes"]
    found: list[list[float]] = torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1).tolist()
    return found


class Report:
    """Print a line for each epoch, after all others have added to its logs."""

    priority: ClassVar[str] = "LOW"

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Print the losses and the precision."""
        print(
            f"epoch {epoch + 1:2d}  loss {logs['loss']:.3f}"
            f"  heat {logs['loss_heat']:.3f}  box {logs['loss_box']:.3f}"
            f"  mAP {logs['val_bbox_map']:.3f}  mAP@0.5 {logs['val_bbox_map_50']:.3f}"
        )


def make_loop(output: Path) -> Loop:
    """Return a loop over a new detector, with all its subscribers."""
    model = Detector()
    backbone = list(model.backbone.parameters())
    rest = [p for name, p in model.named_parameters() if not name.startswith("backbone.")]
    optimizer = torch.optim.AdamW(
        [
            {"params": backbone, "lr": 1.5e-3, "name": "backbone"},
            {"params": rest, "lr": 3e-3, "name": "head"},
        ],
        weight_decay=1e-4,
    )
    loop = TorchStep(
        model, None, optimizer, metrics={"bbox": Collected(coco_map)}, clip_norm=35.0
    ).loop()
    loop.attach(
        LRSchedule(Step([9, 11]), warmup=WarmUp(100, 0.001)),
        FreezeUntil("backbone.stem", epoch=1),
        EMA(decay=0.99),
        CSVLogger(output / "log.csv"),
        Checkpoint(output / "checkpoints", save_best="val_bbox_map_50", keep=1),
        Report(),
    )
    return loop


def train(output: Path, *, epochs: int = 12, seed: int = 0, pictures: int = 1600) -> History:
    """Train a detector and return the run's history."""
    torch.manual_seed(seed)
    output.mkdir(parents=True, exist_ok=True)
    training = DataLoader(Shapes(pictures, seed=1), 16, shuffle=True, collate_fn=collate)
    validation = DataLoader(Shapes(200, seed=2), 50, collate_fn=collate)
    return make_loop(output).fit(training, epochs=epochs, validation_data=validation, resume="auto")


def main() -> None:
    """Read the arguments, train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/detector"), metavar="DIR")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pictures", type=int, default=1600, help="to train on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    history = train(
        options.output, epochs=options.epochs, seed=options.seed, pictures=options.pictures
    )
    print(f"best mAP@0.5 {max(history['val_bbox_map_50']):.3f}")


if __name__ == "__main__":
    main()
