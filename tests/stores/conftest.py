"""Small images, and sources made of them. Each number gives another drawing."""

import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


class Drawings:
    """Made here rather than stored: a test shows what its images are."""

    def pixels(self, number, size=(16, 16), channels=3) -> np.ndarray:
        shape = (*size, channels) if channels > 1 else size
        return np.random.default_rng(number).integers(0, 256, shape, np.uint8)

    def png(self, number, size=(16, 16), channels=3) -> bytes:
        return self.encoded(Image.fromarray(self.pixels(number, size, channels)))

    def encoded(self, image, form="PNG", **settings) -> bytes:
        file = io.BytesIO()
        image.save(file, form, **settings)
        return file.getvalue()

    def classes(self, labels="abcde", images=2, under="", start=0) -> dict[str, bytes]:
        """A folder per class."""
        return {
            f"{under}{label}/{i}.png": self.png(start + 100 * c + i)
            for c, label in enumerate(labels)
            for i in range(images)
        }

    def split_folders(self) -> dict[str, bytes]:
        return {
            **self.classes("ab", under="train/"),
            **self.classes("c", under="val/", start=1000),
            **self.classes("d", under="test/", start=2000),
        }

    def tables(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for s, (split, label) in enumerate((("train", "a"), ("val", "b"), ("test", "c"))):
            rows = [f"{label}{i}.png,{label}" for i in range(3)]
            files[f"{split}.csv"] = "\n".join(["filename,label", *rows]).encode()
            files |= {f"images/{label}{i}.png": self.png(10 * s + i) for i in range(3)}
        return files

    def omniglot(self, alphabets=6) -> dict[str, bytes]:
        """Black strokes on white, one bit a pixel, as the real one."""
        files = {}
        for a in range(alphabets + 1):
            half = "images_background" if a < alphabets else "images_evaluation"
            for i in range(2):
                image = np.ones((20, 20), bool)
                image[2 : 4 + a, 3 + i] = False
                name = f"{half}/Alphabet{a}/character01/{a}_{i}.png"
                files[name] = self.encoded(Image.fromarray(image))
        return files

    def caches(self, protocol=2) -> dict[str, bytes]:
        files = {}
        for s, split in enumerate(("train", "val", "test")):
            images = np.stack([self.pixels(10 * s + i) for i in range(4)])
            content = {
                "image_data": images,
                "class_dict": {f"{split}0": [0, 2], f"{split}1": [1, 3]},
            }
            files[f"mini-imagenet-cache-{split}.pkl"] = pickle.dumps(content, protocol)
        return files

    def folder(self, path: Path, files: dict[str, bytes]) -> Path:
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        return path

    def zip(self, path: Path, files: dict[str, bytes]) -> Path:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path

    def tar(self, path: Path, files: dict[str, bytes], mode="w:gz") -> Path:
        with tarfile.open(path, mode) as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return path


@pytest.fixture
def draw() -> Drawings:
    return Drawings()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The images that are not part of the project."""
    folder = Path(__file__).parents[2].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs real images in {folder}")
    return folder
