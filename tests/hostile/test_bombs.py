"""Small files that ask for gigabytes or for hours. Each is refused under the limits."""

import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import struct
import tarfile

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from tests.hostile.conftest import quietly
from tests.hostile.limits import command

import taskmix
from taskmix import (
    PLATIPUS,
    VCBML,
    VCL,
    CalibratedGradient,
    Encoder,
    Matching,
    MetaLSTM,
    MTNet,
    Versa,
)
from taskmix.experiments.settings_json import learner_from_json
from taskmix.names import unknown
from taskmix.reporting import read_run
from taskmix.stores import manifest


def archive(*names, **headers) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:xz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.pax_headers = headers
            tar.addfile(member)
    return file.getvalue()


def pax(content: bytes) -> bytes:
    """An archive whose first header is followed by this."""
    header, member = tarfile.TarInfo("pax"), tarfile.TarInfo("a/x.png")
    header.type, header.size = tarfile.XHDTYPE, len(content)
    padding = bytes(-len(content) % 512)
    return lzma.compress(header.tobuf() + content + padding + member.tobuf() + bytes(1024))


ARCHIVES = {
    "60,000 folders within folders": archive("a/" * 60_000 + "x.png"),
    "many files, each deep down": archive(*(f"{'a/' * 500}{n}.png" for n in range(3000))),
    "a size of many digits": archive("a/x.png", size="9" * 900_000),
    "a time of many digits": archive("a/x.png", mtime="9" * 900_000),
    "digits and nothing else": pax(b"9" * (1 << 20)),
    "records without a value": pax(b"4 a\n" * 200_000 + b"5 a=\n"),
    "a record longer than the header": pax(b"9999999 a=\n"),
}


@pytest.mark.parametrize("content", ARCHIVES.values(), ids=ARCHIVES)
def test_archive_that_would_take_for_ever_is_refused(limited, tmp_path, content):
    (tmp_path / "images.tar.xz").write_bytes(content)
    source = tmp_path / "images.tar.xz"
    assert not limited.call(command, "data", "prepare", source, "--out", tmp_path / "store")
    assert not (tmp_path / "store").exists()


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(tR(K\x01%scnumpy\ndtype\n(X\x02\0\0\0u1tR\x89C\0tb"
HUGE = b"\x8a\xff" + b"\x7f" * 255
ENCODE = b"c_codecs\nencode\n(h\0tR"
ROWS = np.arange(100_000)
PIXELS = np.zeros((len(ROWS), 1, 1, 1), np.uint8)
PICKLES = {
    "bytes that are not there": b"\x8e" + struct.pack("<Q", 1 << 40),
    "an array of 2000 sides": ARRAY % (b"(" + b"K\x01" * 2000 + b"t"),
    "sides of 2000 bits": ARRAY % (b"(" + HUGE * 4 + b"t"),
    "a million sides": HUGE + b"q\x000" + ARRAY % (b"(" + b"h\0" * 1_000_000 + b"t"),
    "a text, 20,000 times": b"X"
    + struct.pack("<I", 1 << 20)
    + bytes(1 << 20)
    + b"q\x000]("
    + ENCODE * 20_000
    + b"e",
}
CACHES = {
    "rows of one array for 3000 classes": (PIXELS, dict.fromkeys(map(str, range(3000)), ROWS)),
    "twenty million images of a pixel": (np.zeros((20_000_000, 1, 1, 1), np.uint8), {"a": [0]}),
}


@pytest.mark.parametrize(
    "content",
    [
        *(b"\x80\x02" + program + b"." for program in PICKLES.values()),
        *(
            pickle.dumps({"image_data": images, "class_dict": classes}, 2)
            for images, classes in CACHES.values()
        ),
    ],
    ids=[*PICKLES, *CACHES],
)
def test_pickle_that_asks_for_too_much_is_refused(limited, tmp_path, content):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mini-imagenet-cache-train.pkl").write_bytes(content)
    out = tmp_path / "store"
    assert not limited.call(command, "data", "prepare", tmp_path / "in", "--out", out)
    assert not out.exists()


def nested(depth: int) -> dict:
    part: dict = {"type": "MLP", "hidden": [2]}
    for _ in range(depth):
        part = {"type": "Encoder", "model": part}
    return part


LEARNERS = {
    "a million layers": lambda learner: learner["model"].update(hidden=[2] * 1_000_000),
    "a million parts": lambda learner: learner.update(parts=[{"type": "MLP"}] * 60 * 60),
    "parts within parts": lambda learner: learner.update(model=nested(200)),
    "a million steps": lambda learner: learner["adaptation"].update(steps=1_000_000),
    "a layer of 2^40": lambda learner: learner["model"].update(hidden=[2**40]),
}


@pytest.mark.parametrize("change", LEARNERS.values(), ids=LEARNERS)
def test_model_that_would_take_for_ever_is_refused(limited, good, change):
    described = json.loads((good / "model" / "model.json").read_text())
    change(described["learner"])
    content = json.dumps(described).encode()
    (good / "model" / "model.json").write_bytes(content)
    sums = json.loads((good / "model" / "checksums.json").read_text())
    sums["model.json"] = hashlib.sha256(content).hexdigest()
    (good / "model" / "checksums.json").write_text(json.dumps(sums))
    assert not limited.call(taskmix.load, good / "model")


def test_lists_and_parts_of_a_description_are_counted_before_anything_is_built():
    with pytest.raises(ValueError, match="65 entries"):
        learner_from_json({"type": "MAML", "model": {"hidden": [2] * 65}})
    with pytest.raises(ValueError, match="more parts"):
        learner_from_json(nested(70))


@pytest.mark.parametrize("value", [10**12, 501, 0, 10**400], ids=["12", "501", "0", "400"])
@pytest.mark.parametrize(
    ("part", "name"),
    [
        (Encoder, "blocks"),
        (CalibratedGradient, "parts"),
        (Matching, "reads"),
        (MetaLSTM, "updates"),
        (MTNet, "samples"),
        (PLATIPUS, "samples"),
        (VCL, "test_samples"),
        (VCBML, "test_samples"),
        (Versa, "samples"),
        (Versa, "blocks"),
    ],
)
def test_what_a_prediction_repeats_has_a_bound(part, name, value):
    """A description of a few bytes could ask for programs, draws and powers without end."""
    with pytest.raises(ValueError, match=f"{name} is .*must be 1 to 500"):
        part(**{name: value})


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def many_families(run) -> None:
    changed = lines(run / "metrics.jsonl")
    for line in changed:
        one = line["families"]["linear"]
        line["families"] = {f"f{number}": one for number in range(3000)}
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, changed)))


def many_phases(run) -> None:
    config = json.loads((run / "config.json").read_text())
    config["phases"] = [{"start": 0, "stop": 1, "families": ["linear"]}] * 200_000
    (run / "config.json").write_text(json.dumps(config))


def distant_cluster(run) -> None:
    changed = lines(run / "metrics.jsonl") * 1000
    for line in changed:
        line["cluster_ids"] = [99_999]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, changed)))


def endless_file(run) -> None:
    os.truncate(run / "metrics.jsonl", 1 << 40)


@pytest.mark.parametrize("spoil", [many_families, many_phases, distant_cluster, endless_file])
def test_run_that_no_figure_could_show_is_refused(limited, good, spoil):
    (good / "run" / "checksums.json").unlink()
    spoil(good / "run")
    assert not limited.call(read_run, good / "run")
    with pytest.raises(ValueError, match=r"no run writes|MiB"):
        read_run(good / "run")


TABLE = ("--task", "day", "--target", "sold", "--support", "2")


def packed_table(path):
    """Eighty bytes to a byte would be a table; a thousand are not."""
    with gzip.open(path, "wb") as file:
        file.write(b"day,x,sold\n")
        for _ in range(80):
            file.write(b"d,1,1\n" * 200_000)


def repeated_rows(path):
    """Every value is written once, with how often it comes."""
    frame = pl.DataFrame({"day": ["d"], "x": [1.0], "sold": [1.0]}).select(
        pl.all().repeat_by(1 << 22).explode()
    )
    schema = frame.to_arrow().schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(8):
            writer.write_table(frame.to_arrow(), row_group_size=1 << 22)


def repeated_texts(path):
    """Every name has a megabyte, and is written once."""
    names = pl.Series(["d" * (1 << 20) + str(number) for number in range(8)])
    days = names.gather([number // 300 for number in range(2400)]).cast(pl.Categorical)
    frame = pl.DataFrame({"day": days, "x": range(2400), "sold": range(2400)})
    pq.write_table(frame.to_arrow(), path, compression="zstd")


@pytest.mark.parametrize(
    ("name", "make"),
    [("a.csv", packed_table), ("a.parquet", repeated_rows), ("a.parquet", repeated_texts)],
    ids=["gzip", "rows", "texts"],
)
def test_table_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, name, make):
    make(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 1 << 20
    code, said = quietly("run", "table", tmp_path / name, *TABLE, "--out", tmp_path / "out")
    assert (code, len(said.splitlines())) == (2, 1)
    assert "unpacks to more than 100 times its size" in said
    assert not (tmp_path / "out").exists()


def test_table_of_too_many_columns_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("day,sold" + ",c" * 500_000 + "\n")
    code, said = quietly("run", "table", tmp_path / "a.csv", *TABLE, "--out", tmp_path / "out")
    assert code == 2
    assert "500,002 columns, more than 16,384" in said


def test_names_that_are_listed_are_few_and_short():
    """There may be thousands of columns, with names of a megabyte."""
    names = ["a" * 10_000, *(f"c{number}" for number in range(10_000)), "day"]
    said = str(unknown("column", "b" * 10_000, names))
    assert len(said) < 1000
    assert "9,942 more" in said


@pytest.mark.parametrize("first", [b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd"])
def test_table_packed_otherwise_is_not_handed_to_whoever_unpacks_it(tmp_path, first):
    """Zlib keeps a first line as it is if asked to, so that it looks like a heading."""
    (tmp_path / "a.csv").write_bytes(first + b"\x01  \xdf\xdf,day,sold\nx,d,1\n")
    code, said = quietly("run", "table", tmp_path / "a.csv", *TABLE, "--out", tmp_path / "out")
    assert (code, len(said.splitlines())) == (2, 1)
    assert "packed with gzip" in said


@pytest.mark.parametrize("name", ["config.json", "command.json", "summary.json", "checksums.json"])
def test_endless_file_of_a_run_is_not_read(limited, good, name):
    """It takes no room on the disk: all of it is a hole."""
    os.truncate(good / "run" / name, 1 << 40)
    assert not limited.call(command, "resume", good / "run")


@pytest.mark.parametrize("name", ["manifest.json", "checkpoint.safetensors"])
def test_endless_file_of_a_checkpoint_is_not_read(limited, good, name):
    newest = max((good / "run" / "checkpoints").iterdir())
    os.truncate(newest / name, 1 << 40)
    assert not limited.call(command, "export", good / "run", "--out", good / "exported")


def test_manifest_lists_so_many_problems_and_no_more(good, monkeypatch):
    """A store with more of them would be one that its own reader refuses."""
    monkeypatch.setattr(manifest, "MOST_PROBLEMS", 3)
    for number in range(8):
        (good / "images" / "a" / f"broken-{number}.png").write_text("no image")
    prepare = ("data", "prepare", good / "images", "--out", good / "new", "--size", "8", "--quiet")
    assert quietly(*prepare, "--splits", "0.4", "0.3", "0.3") == (0, "")
    written, _ = manifest.read_manifest(good / "new")
    assert len(written.problems) == 4
    assert written.problems[-1] == {
        "file": "SOURCE",
        "what": "has 5 more problems, not listed here",
    }


def test_manifest_that_would_be_too_large_is_not_written(good, monkeypatch):
    monkeypatch.setattr(manifest, "LARGEST", 100)
    prepare = ("data", "prepare", good / "images", "--out", good / "new", "--size", "8", "--quiet")
    code, said = quietly(*prepare, "--splits", "0.4", "0.3", "0.3")
    assert code == 2
    assert "manifest.json would have more than" in said
    assert not (good / "new").exists()
