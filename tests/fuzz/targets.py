"""A target for every reader of files: what a good one looks like, and how it is read.

They are read as users read them: by commands, and by the functions of the package.
"""

import contextlib
import hashlib
import io
import json
import pickle
import random
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from tests.fuzz.calls import CALL_TARGETS
from tests.fuzz.files import (
    Files,
    Target,
    as_json,
    files_in,
    other_header,
    pictures,
    resigned,
    spoiled_object,
    write,
)
from tests.fuzz.mutations import spoiled, spoiled_json
from tests.fuzz.pages import PAGE_TARGETS, page_of
from tests.fuzz.tables import TABLE_TARGETS
from tests.hostile.conftest import COMPARE, RUN
from tests.hostile.limits import command

import taskmix
from taskmix.cli import main
from taskmix.reporting import comparison_figures, read_run, read_runs
from taskmix.stores import open_store
from taskmix.stores.manifest import _checksum, _text
from taskmix.stores.prepare import Options, prepare_store

REFUSALS = (ValueError, OSError)
"""What the command line shows as one line."""


# Image stores


DIVIDED = Options(size=8, smallest=1, workers=1, splits=(0.4, 0.3, 0.3))
"""A folder per class has no splits of its own."""


def _good_store() -> Files:
    with tempfile.TemporaryDirectory() as name:
        source, out = Path(name) / "in", Path(name) / "out"
        write(source, pictures())
        prepare_store(source, out, DIVIDED)
        return files_in(out)


def _read_store(folder: Path) -> None:
    command("data", "show", folder, "--out", folder / "sheet.png")
    for verify in (False, True):
        store = open_store(folder, verify)
        for split in store.splits:
            store.split(split).images.sum()


def _signed_store(good: Files, name: str, draw: random.Random) -> Files:
    manifest = spoiled_object(good["manifest.json"], draw) or {}
    manifest.pop("checksum", None)
    signed = {**manifest, "checksum": _checksum(manifest)}
    return {**good, "manifest.json": _text(signed).encode("utf-8", "surrogatepass")}


# Sources of images


def _archived(kind: str) -> Callable[[], Files]:
    def good() -> Files:
        file = io.BytesIO()
        if kind == "zip":
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in pictures().items():
                    archive.writestr(name, content)
        else:
            with tarfile.open(fileobj=file, mode="w:gz" if kind == "tgz" else "w") as archive:
                for name, content in pictures().items():
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        return {f"images.{kind}": file.getvalue()}

    return good


PREPARE = ("--size", 8, "--smallest", 1, "--workers", 1)
SPLITS = ("--splits", 0.4, 0.3, 0.3)


def _prepare_file(folder: Path) -> None:
    (source,) = folder.iterdir()
    command("data", "prepare", source, "--out", folder / "store", *PREPARE, *SPLITS)


def _prepare_divided(folder: Path) -> None:
    _prepare_folder(folder, *SPLITS)


def _prepare_folder(folder: Path, *more: object) -> None:
    with tempfile.TemporaryDirectory() as out:
        command("data", "prepare", folder, "--out", Path(out) / "store", *PREPARE, *more)


def _good_caches() -> Files:
    images = np.random.default_rng(0).integers(0, 256, (4, 9, 9, 3), np.uint8)
    content = {"image_data": images, "class_dict": {"a": [0, 2], "b": [1, 3]}}
    return {
        f"mini-imagenet-cache-{split}.pkl": pickle.dumps(content, protocol)
        for split, protocol in (("train", 2), ("val", 4), ("test", 5))
    }


def _good_tables() -> Files:
    images = {name.replace("/", ""): content for name, content in pictures().items()}
    table = "\n".join(["filename,label", *(f"{name},{name[0]}" for name in images)]).encode()
    files = {f"{split}.csv": table for split in ("train", "val")}
    return files | {f"images/{name}": content for name, content in images.items()}


# Run folders


def _trained(*arguments: str) -> Files:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        assert main([*arguments, "--out", str(out)]) == 0
        return {
            name: content for name, content in files_in(out).items() if not name.startswith("fig")
        }


def _good_run() -> Files:
    return _trained(*RUN)


def _good_comparison() -> Files:
    return _trained(*COMPARE)


def _read_run_folder(folder: Path) -> None:
    """All that reads one: the report, ``export`` and ``resume``."""
    with contextlib.suppress(*REFUSALS):
        read_run(folder)
    command("export", folder, "--out", folder / "exported")
    command("resume", folder, "--quiet")


def _read_comparison(folder: Path) -> None:
    with contextlib.suppress(*REFUSALS):
        read_runs(folder)
    command("resume", folder, "--quiet")


def _report(folder: Path) -> None:
    """Figures of runs that are as somebody else says they are."""
    comparison_figures(folder)


def _signed_run(good: Files, name: str, draw: random.Random) -> Files:
    """Lines and settings have no checksum; a checkpoint's arrays get one that fits."""
    content = good[name]
    if name.endswith(".jsonl"):
        lines = content.splitlines() or [b"{}"]
        at = draw.randrange(len(lines))
        changed = [
            *lines[:at],
            as_json(spoiled_json(json.loads(lines[at]), draw)),
            *lines[at + 1 :],
        ]
        return _with_sums({**good, name: b"\n".join(changed)}, name)
    if name.endswith(".json"):
        changed = {**good, name: as_json(spoiled_json(json.loads(content), draw))}
        return _with_sums(changed, name) if name.endswith("summary.json") else changed
    if not name.endswith(".safetensors"):
        return {**good, name: spoiled(content, draw)}
    return resigned(good, name, other_header(content, draw))


def _with_sums(files: Files, name: str) -> Files:
    """The checksums of a run's results, made to fit."""
    folder, _, own = name.rpartition("/")
    path = f"{folder}/checksums.json".lstrip("/")
    if path not in files:
        return files
    sums = json.loads(files[path])
    content = files[name]
    sums[own] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {**files, path: as_json(sums)}


# Exported models


def _good_model() -> Files:
    with tempfile.TemporaryDirectory() as name:
        run, out = Path(name) / "run", Path(name) / "model"
        write(run, _good_run())
        command("export", run, "--out", out)
        return files_in(out)


def _load_model(folder: Path) -> None:
    predictor = taskmix.load(folder)
    zeros = np.zeros((3, 1), np.float32)
    jax.block_until_ready(predictor.predict(zeros, zeros, zeros))


def _signed_model(good: Files, name: str, draw: random.Random) -> Files:
    files = dict(good)
    if draw.random() < 0.7:
        files["model.json"] = as_json(spoiled_json(json.loads(good["model.json"]), draw))
    else:
        files["model.safetensors"] = other_header(good["model.safetensors"], draw)
    names = ("model.safetensors", "model.json")
    sums = {name: hashlib.sha256(files[name]).hexdigest() for name in names}
    return {**files, "checksums.json": as_json(sums)}


TARGETS = {
    "store": Target(_good_store, _read_store, _signed_store),
    "folder": Target(pictures, _prepare_divided),
    "zip": Target(_archived("zip"), _prepare_file),
    "tar": Target(_archived("tar"), _prepare_file),
    "tgz": Target(_archived("tgz"), _prepare_file),
    "caches": Target(_good_caches, _prepare_folder),
    "tables": Target(_good_tables, _prepare_folder),
    "run": Target(_good_run, _read_run_folder, _signed_run),
    "comparison": Target(_good_comparison, _read_comparison, _signed_run),
    "report": Target(_good_comparison, _report, _signed_run),
    "model": Target(_good_model, _load_model, _signed_model),
    "page": page_of(_good_comparison, _signed_run, ".", "maml/seed-0"),
    **TABLE_TARGETS,
    "table-page": page_of(
        TABLE_TARGETS["table-run"].good, TABLE_TARGETS["table-run"].signed, "run"
    ),
    **PAGE_TARGETS,
    **CALL_TARGETS,
}


def read(target: str, folder: Path) -> None:
    """Read the files of a target, in the process that this is called in."""
    TARGETS[target].read(folder)
