"""Nothing in a pickle is ever run; arrays, text, numbers and containers are read as pickle does."""

import collections
import os
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmix.stores.caches import open_cache
from taskmix.stores.pickles import read_pickle

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


class Runs:
    """Unpickled as intended, it runs a command."""

    def __init__(self, *call) -> None:
        self.call = call

    def __reduce__(self):
        return self.call


def read(content: bytes):
    return read_pickle(memoryview(content), "cache.pkl")


def short(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text


def python2_array(array: np.ndarray) -> bytes:
    """As Python 2 pickled it: the content is a string, with no word of an encoding."""
    order = {"|": b"|", "=": b"<", "<": b"<"}[array.dtype.byteorder]
    shape = b"(" + b"".join(b"J" + struct.pack("<i", side) for side in array.shape) + b"t"
    kind = b"cnumpy\ndtype\n" + short(array.dtype.str[1:].encode()) + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + short(order) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = array.tobytes()
    content = b"T" + struct.pack("<i", len(raw)) + raw
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + short(b"b")
    return empty + b"\x87R(K\x01" + shape + kind + b"\x89" + content + b"tb"


def python2_cache(images: np.ndarray, classes: dict[bytes, list[int]]) -> bytes:
    rows = b"".join(
        short(label) + b"](" + b"".join(b"K" + bytes([row]) for row in rows) + b"e"
        for label, rows in classes.items()
    )
    entries = short(b"image_data") + python2_array(images) + short(b"class_dict") + b"}(" + rows
    return b"\x80\x02}(" + entries + b"uu."


@given(VALUES, st.integers(2, 5))
def test_plain_values_are_read_as_pickle_reads_them(value, protocol):
    content = pickle.dumps(value, protocol)
    assert read(content) == pickle.loads(content)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["u1", "i8", ">i4", "f4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_pickle_reads_them(protocol, kind, order):
    array = np.asarray(np.arange(24).reshape(2, 3, 4) % 7, kind, order=order)
    found = read(pickle.dumps([array, array], protocol))
    for copy in found:
        np.testing.assert_array_equal(copy, array)
        assert copy.dtype == array.dtype


@pytest.mark.parametrize("protocol", [2, 4])
def test_scalars_become_numbers(protocol):
    assert read(pickle.dumps({"a": np.int64(7), "b": np.float32(0.5)}, protocol)) == {
        "a": 7,
        "b": 0.5,
    }


@pytest.mark.parametrize("side", [4, 200])
def test_cache_of_python_2_is_read(side):
    images = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), np.uint8)
    content = python2_cache(images, {b"n01": [0, 2], b"n02": [1]})
    assert pickle.loads(content, encoding="latin1")["class_dict"] == {"n01": [0, 2], "n02": [1]}
    cache = open_cache(memoryview(content), "cache.pkl")
    np.testing.assert_array_equal(cache.images, images)
    assert cache.rows == {"n01": [0, 2], "n02": [1]}


def test_large_array_is_a_view_of_the_file():
    content = memoryview(pickle.dumps(np.zeros(100_000, np.uint8), 4))
    assert np.shares_memory(read_pickle(content, "cache.pkl"), np.frombuffer(content, np.uint8))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "call", [(os.system,), (exec,), (eval,), (getattr,), (collections.OrderedDict,), (np.load,)]
)
def test_whatever_could_run_is_refused_and_not_run(tmp_path, protocol, call):
    mark = tmp_path / "it ran"
    arguments = (f"touch '{mark}'",) if call[0] is os.system else (f"open({str(mark)!r}, 'w')",)
    with pytest.raises(ValueError, match=r"cache.pkl is not read: it asks for"):
        read(pickle.dumps({"image_data": Runs(call[0], arguments)}, protocol))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x80\x02cnumpy\nndarray\n)R.", "it calls ndarray"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)\x81.", "instruction"),
        (b"\x80\x02(S'id'\nios\nsystem\n.", "instruction"),
        (b"\x80\x02]Ncnumpy\ndtype\n\x86b.", "state of a list"),
        (b"\x80\x02U\x01a)R.", "a str where a _Name"),
        (b"\x80\x02}])s.", "a list for a key"),
        (b"\x80\x02)NNs.", "a tuple where a dict"),
        (b"\x80\x02P1\n.", "instruction"),
        (b"\x80\x02\x82\x01.", "instruction"),
        (b"(dp0\n.", "protocol 2"),
        (b"", "protocol 2"),
    ],
)
def test_other_instructions_are_refused(content, why):
    with pytest.raises(ValueError, match=f"is not read: .*{why}"):
        read(content)


def test_array_of_objects_is_refused():
    with pytest.raises(ValueError, match="array of the type 'O8'"):
        read(pickle.dumps(np.array([Runs, None], object)[1:], 2))


def test_shape_that_does_not_fit_its_content_is_refused():
    content = pickle.dumps(np.zeros((2, 3), np.uint8), 4)
    lie = content.replace(b"K\x02K\x03\x86", b"K\x09K\x03\x86")
    assert lie != content
    with pytest.raises(ValueError, match=r"shape \(9, 3\) with 6 numbers"):
        read(lie)


def test_endless_program_is_refused(monkeypatch):
    monkeypatch.setattr("taskmix.stores.pickles.MOST_STEPS", 100)
    with pytest.raises(ValueError, match="more than 100"):
        read(b"\x80\x02" + b"N0" * 100 + b".")


def test_truncated_pickle_is_refused_at_every_length(draw):
    content = draw.caches()["mini-imagenet-cache-val.pkl"]
    for length in range(0, len(content), 41):
        with pytest.raises(ValueError, match=r"cache\.pkl"):
            open_cache(memoryview(content[:length]), "cache.pkl")


@given(st.data())
def test_flipped_pickle_gives_a_cache_or_a_clear_error(data):
    images = np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3)
    content = bytearray(pickle.dumps({"image_data": images, "class_dict": {"a": [0]}}, 2))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    complaint = ""
    try:
        open_cache(memoryview(bytes(content)), "cache.pkl")
    except ValueError as error:
        complaint = str(error)
    assert not complaint or "cache.pkl" in complaint


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"image_data": [1, 2]}, "no uint8 array"),
        ({"image_data": np.zeros((2, 4, 4, 3), np.float32)}, "no uint8 array"),
        ({"image_data": np.zeros((2, 4, 4, 2), np.uint8)}, "needs 3 channels"),
        ({"class_dict": {"a": [0, 2]}}, "rows outside 0 to 1"),
        ({"class_dict": {"a": [-1]}}, "rows outside"),
        ({"class_dict": {"a": "01"}}, "rows outside"),
        ({"class_dict": {}}, "no dictionary"),
    ],
)
def test_pickle_that_is_no_cache_is_refused(change, complaint):
    cache = {"image_data": np.zeros((2, 4, 4, 3), np.uint8), "class_dict": {"a": [0, 1]}, **change}
    with pytest.raises(ValueError, match=complaint):
        open_cache(memoryview(pickle.dumps(cache, 4)), "cache.pkl")
