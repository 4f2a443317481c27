"""Learn from images of your own: prepare them once, train, and recognise new classes from one shot.

Drawn shapes stand for photographs, a folder per class. They are prepared as a store, a learner
trains on tasks of some of the classes, and then tells apart classes that it has never seen.

    python examples/images.py
"""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import taskmix as tm

WAY, ITERATIONS = 3, 40


def draw(folder: Path, classes: int = 15, images: int = 12, size: int = 20) -> None:
    """A folder per class; a class is a polygon with its own corners, drawn by a shaky hand."""
    rng = np.random.default_rng(0)
    for number in range(classes):
        corners = rng.uniform(2, size - 2, (5, 2))
        (folder / f"shape-{number:02}").mkdir(parents=True)
        for copy in range(images):
            picture = Image.new("L", (size, size), 255)
            points = [tuple(point) for point in corners + rng.normal(0, 0.6, corners.shape)]
            ImageDraw.Draw(picture).polygon(points, fill=0)
            picture.save(folder / f"shape-{number:02}" / f"{copy:02}.png")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder / "shapes")
        options = tm.stores.Options(size=16, splits=(0.6, 0.2, 0.2), workers=1)
        report = tm.stores.prepare_store(folder / "shapes", folder / "store", options)
        for split, shard in report.manifest.splits.items():
            print(f"{split}: {len(shard.classes)} classes, {shard.images} images")

        experiment = tm.FewShot(
            data=str(folder / "store"),
            size=16,
            way=WAY,
            shot=1,
            query=5,
            test_query=5,
            tasks=4,
            iterations=ITERATIONS,
        )
        settings = tm.Settings(evaluate_every=ITERATIONS, test_tasks=20)
        fitted = tm.fit("prototypical", experiment, out=folder / "run", settings=settings)
        test = fitted.summaries[0]["test"]
        print(f"new classes: {test['accuracy']:.1%} right from one image each; 33.3% is chance")

        split = tm.stores.open_store(folder / "store").split("test")
        first = split.images[split.first[:WAY]] / 255
        second = split.images[split.first[:WAY] + 1] / 255
        found = fitted.predictor().predict(first, np.arange(WAY), second)
        print(f"three new images: {np.argmax(found.mean, axis=-1)}")


if __name__ == "__main__":
    main()
