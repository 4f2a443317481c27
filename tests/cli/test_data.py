"""``taskmix data`` as a user types it."""

import os
import signal

import numpy as np
import pytest
from PIL import Image

from taskmix.cli import main
from taskmix.stores import open_store


@pytest.fixture
def source(tmp_path):
    """Five classes of three images; one of them is broken."""
    for c, label in enumerate("abcde"):
        (tmp_path / "in" / label).mkdir(parents=True)
        for i in range(3):
            pixels = np.random.default_rng(10 * c + i).integers(0, 256, (20, 20, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "in" / label / f"{i}.png")
    (tmp_path / "in" / "a" / "[red].png").write_bytes(b"no image")
    return tmp_path / "in"


def prepared(source, out, *flags) -> int:
    return main(["data", "prepare", str(source), "--out", str(out), "--size", "16", *flags])


def complaint(capsys) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_prepare_writes_a_store_and_tells_what_it_skipped(source, tmp_path, capsys):
    assert prepared(source, tmp_path / "out", "--splits", "0.6", "0.2", "0.2") == 0
    text = capsys.readouterr().out
    assert "16x16" in text
    assert "a/[red].png: is not a readable image" in text
    assert f"store: {tmp_path / 'out'}" in text
    store = open_store(tmp_path / "out")
    assert [len(store.split(name).classes) for name in store.splits] == [3, 1, 1]


def test_quiet_prepare_prints_nothing(source, tmp_path, capsys):
    assert prepared(source, tmp_path / "out", "--quiet") == 0
    assert capsys.readouterr().out == ""


def test_many_problems_are_listed_in_part(source, tmp_path, capsys):
    for i in range(30):
        (source / "b" / f"{i}.jpg").touch()
    assert prepared(source, tmp_path / "out") == 0
    assert "problems: 31" in (text := capsys.readouterr().out)
    assert "and 11 more, listed in manifest.json" in text


MISTAKES = {
    "strict": (["--strict"], "[red].png is not a readable image"),
    "fractions": (["--splits", "0.5", "0.5", "0.5"], "add up to 1"),
    "list": (["--classes", "ravii"], "Did you mean 'ravi'"),
    "both": (["--classes", "ravi", "--splits", "0.6", "0.2", "0.2"], "give one of them"),
    "size": (["--size", "0"], "size is 0"),
    "flag": (["--sise", "3"], "--size"),
}


@pytest.mark.parametrize(("flags", "hint"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_gives_one_line_and_leaves_nothing(source, tmp_path, capsys, flags, hint):
    assert prepared(source, tmp_path / "out", *flags) == 2
    assert hint in complaint(capsys)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["data"], "taskmix data prepare | show"),
        (["data", "prepair"], "Did you mean 'prepare'"),
        (["data", "prepare", "nowhere", "--out", "out"], "SOURCE nowhere does not exist"),
        (["data", "prepare", "nowhere"], "--out"),
        (["data", "show", "nowhere"], "no store nowhere"),
    ],
)
def test_wrong_words_give_one_line(arguments, hint, capsys, tmp_path, monkeypatch):
    if arguments[1:2] == ["show"]:
        pytest.importorskip("taskmix.reporting.contact_sheet")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert hint in complaint(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def _hears_interrupts():
    """As in a terminal: what a shell starts in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_hears_interrupts")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_interrupted_prepare_leaves_nothing(source, tmp_path, capsys, monkeypatch, name):
    def interrupted(*_):
        os.kill(os.getpid(), getattr(signal, name))

    monkeypatch.setattr("taskmix.stores.shards.ShardWriter.put", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stop:
        prepared(source, tmp_path / "out")
    assert stop.value.code == 130
    assert "nothing was written" in complaint(capsys)
    assert list(tmp_path.iterdir()) == [source]
    assert signal.getsignal(signal.SIGTERM) is before


def test_show_prints_a_table_and_draws_a_sheet(source, tmp_path, capsys):
    pytest.importorskip("taskmix.reporting.contact_sheet")
    prepared(source, tmp_path / "out", "--quiet")
    sheet = tmp_path / "sheet.png"
    assert main(["data", "show", str(tmp_path / "out"), "--split", "val", "--out", str(sheet)]) == 0
    assert "16x16" in (text := capsys.readouterr().out)
    assert f"sheet: {sheet}" in text
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_show_of_an_unknown_split_suggests_the_nearest(source, tmp_path, capsys):
    pytest.importorskip("taskmix.reporting.contact_sheet")
    prepared(source, tmp_path / "out", "--quiet")
    assert main(["data", "show", str(tmp_path / "out"), "--split", "vall"]) == 2
    assert "Did you mean 'val'" in complaint(capsys)


@pytest.mark.parametrize("action", ["prepare", "show"])
def test_help_tells_the_flags(action, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["data", action, "--help"])
    assert not stop.value.code
    assert "--out" in capsys.readouterr().out
