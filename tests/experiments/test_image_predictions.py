"""Images of one's own: trained on from a folder, and labelled from a folder."""

import csv
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from taskmix.cli import main
from taskmix.experiments.image_predictions import labelled
from taskmix.experiments.sharing import Predictor
from taskmix.likelihood import Categorical

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220)}


def write(folder, name, colour, rng):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.clip(np.array(colour) + rng.normal(scale=15, size=(20, 20, 3)), 0, 255)
    Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{name}.png")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of a few iterations on a folder of coloured squares, a colour per class."""
    folder, rng = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASKMIX_CACHE", str(folder / "cache"))
        patch.setattr("taskmix.experiments.few_shot.FINAL_EPISODES", 2)
        for split in ("train", "val"):
            for number, colour in enumerate(rng.integers(0, 255, (6, 3))):
                for image in range(4):
                    write(folder / "mine" / split / f"c{number}", str(image), colour, rng)
        code = main(
            [
                *("run", "few-shot", "--data", str(folder / "mine"), "--test-split", "val"),
                *("--method", "r2d2", "--size", "16", "--width", "4", "--way", "4", "--quiet"),
                *("--tasks", "2", "--query", "2", "--test-query", "2", "--test-tasks", "2"),
                *("--iterations", "40", "--head-rate", "0.01", "--out", str(folder / "run")),
            ]
        )
    assert code == 0
    return folder


def test_images_are_labelled_with_the_names_of_their_folders(trained, capsys):
    rng = np.random.default_rng(1)
    for name, colour in COLOURS.items():
        for image in range(2):
            write(trained / "known" / name, str(image), colour, rng)
            write(trained / "asked", f"{name}-{image}", colour, rng)
    (trained / "asked" / "broken.png").write_bytes(b"no image")
    out = trained / "said" / "labels.csv"
    command = ["predict", str(trained / "run"), "--support", str(trained / "known")]
    assert main([*command, "--query", str(trained / "asked"), "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["label"] for row in rows] == [row["image"].split("-")[0] for row in rows]
    assert len(rows) == 6
    for row in rows:
        shares = [float(row[f"p({name})"]) for name in COLOURS]
        assert sum(shares) == pytest.approx(1, abs=1e-3)
        assert max(shares) == pytest.approx(float(row["probability"]))
    with Image.open(out.with_suffix(".png")) as sheet:
        assert sheet.size[0] > 500
    assert "broken.png is not a readable image" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("classes", "loose", "message"), [(5, False, "5 classes"), (2, True, "in no folder")]
)
def test_support_that_cannot_be_used_is_refused(trained, tmp_path, capsys, classes, loose, message):
    rng = np.random.default_rng(2)
    for number in range(classes):
        write(tmp_path / "known" / str(number), "0", (9, 9, 9), rng)
    if loose:
        write(tmp_path / "known", "loose", (9, 9, 9), rng)
    known = ["--support", str(tmp_path / "known"), "--query", str(tmp_path / "known")]
    assert main(["predict", str(trained / "run"), *known, "--out", str(tmp_path / "o.csv")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "shape",
    [[2, 1 << 20, 1 << 20, 3], [2, 8, 9, 3], [2, 8, 8, 7], [2, 2, 2, 1], [2, "8", "8", 3]],
    ids=str,
)
def test_model_of_images_that_no_store_holds_is_refused_before_any_is_made(tmp_path, shape):
    """A model whose features are means over an image fits any size that its file says."""
    model = Mock(
        spec=Predictor,
        facts={"example": {"support": {"x": {"shape": shape}}}},
        learner=SimpleNamespace(likelihood=Categorical()),
    )
    with pytest.raises(ValueError, match="must be square, of 4 to 1024 pixels"):
        labelled(model, tmp_path, tmp_path)
