"""An archive is not believed: whatever it claims, nothing outside it is touched or filled."""

import io
import stat
import tarfile
import zipfile
import zlib

import pytest

from taskmix import files
from taskmix.stores import archives
from taskmix.stores.archives import open_source

ESCAPES = ("../out.png", "a/../../out.png", "/etc/out.png", "C:/out.png", "..\\out.png", "a\\..\\b")
LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)


@pytest.fixture
def small_allowance(monkeypatch):
    """Small bombs, for quick tests."""
    monkeypatch.setattr(files, "ALLOWANCE", 1 << 20)


def tar_of(path, *members: tarfile.TarInfo, mode="w"):
    with tarfile.open(path, mode) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(name="a/0.png", size=0, kind=tarfile.REGTYPE, link="") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = size, kind, link
    return made


def refused(path, complaint):
    with pytest.raises(ValueError, match=complaint) as caught:
        open_source(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ESCAPES)
def test_names_that_lead_out_are_refused(tmp_path, draw, name):
    refused(draw.zip(tmp_path / "a.zip", {name: b"x"}), "leads out of the archive")
    refused(draw.tar(tmp_path / "a.tgz", {name: b"x"}), "leads out of the archive")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tgz", "a.zip"]


@pytest.mark.parametrize("kind", LINKS)
def test_links_and_devices_in_tar_are_refused(tmp_path, kind):
    refused(tar_of(tmp_path / "a.tar", member(kind=kind, link="/etc/passwd")), "is a link, a dev")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_zip_are_refused(tmp_path, kind):
    entry = zipfile.ZipInfo("a/0.png")
    entry.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    refused(tmp_path / "a.zip", "is a link or a device")


@pytest.mark.parametrize("name", ["a/\n.png", "a/\x1b[31m.png", "a/\udcff.png"])
def test_names_that_would_confuse_a_terminal_are_refused(tmp_path, name):
    refused(tar_of(tmp_path / "a.tar", member(name)), "cannot be printed")


def test_name_that_is_there_twice_is_refused(tmp_path):
    refused(tar_of(tmp_path / "a.tar", member(), member("./a/0.png")), "is there twice")


def test_file_without_a_name_is_refused(tmp_path):
    refused(tar_of(tmp_path / "a.tar", member(), member(".")), "is no name of a file")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", b"")
    # zipfile writes no such name, so it is taken out of the directory at the end.
    content = (tmp_path / "a.zip").read_bytes()
    at = content.index(b"PK\1\2")
    nameless = bytearray(content[:at] + content[at:].replace(b"x", b"", 1))
    nameless[at + 28] = 0
    end = nameless.index(b"PK\5\6")
    nameless[end + 12] -= 1
    (tmp_path / "a.zip").write_bytes(nameless)
    refused(tmp_path / "a.zip", "is no name of a file")


def test_zip_with_a_password_is_refused(tmp_path, draw):
    path = draw.zip(tmp_path / "a.zip", {"a/0.png": b"x"})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    refused(path, "needs a password")


@pytest.mark.usefixtures("small_allowance")
@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_tar_bomb_is_refused_before_it_is_unpacked(tmp_path, mode):
    refused(tar_of(tmp_path / "bomb", member(size=4 << 20), mode=mode), "times its size")


@pytest.mark.usefixtures("small_allowance")
def test_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(16):
            archive.writestr(f"a/{i}.png", bytes(1 << 18))
    refused(tmp_path / "bomb.zip", "times its size")


@pytest.mark.usefixtures("small_allowance")
def test_bomb_behind_the_end_of_a_tar_is_refused(tmp_path):
    packer = zlib.compressobj(wbits=31)
    with (tmp_path / "bomb.tgz").open("wb") as file:
        file.write(packer.compress(tar_of(tmp_path / "a.tar", member()).read_bytes()))
        for _ in range(8):
            file.write(packer.compress(bytes(1 << 20)))
        file.write(packer.flush())
    refused(tmp_path / "bomb.tgz", "times its size")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_endless_name_in_a_tar_header_is_not_read_into_memory(tmp_path, kind):
    refused(tar_of(tmp_path / "a.tgz", member(size=2 << 20, kind=kind), mode="w:gz"), "header of")


def test_headers_that_describe_headers_without_end_are_refused(tmp_path):
    headers = [member(kind=tarfile.GNUTYPE_LONGNAME) for _ in range(3000)]
    refused(tar_of(tmp_path / "a.tar", *headers), "not a readable zip or tar")


@pytest.mark.parametrize(
    "limit",
    [(archives, "MOST_FILES", 3, "more than 3 files"), (files, "RATIO", 0, "times")],
)
def test_limits_hold_for_both_kinds(tmp_path, draw, monkeypatch, limit):
    module, name, value, complaint = limit
    monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(files, "ALLOWANCE", 100)
    refused(draw.zip(tmp_path / "a.zip", draw.classes()), complaint)
    refused(draw.tar(tmp_path / "a.tar", draw.classes(), "w"), complaint)


def test_member_larger_than_an_image_may_be_is_not_read(tmp_path, draw, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST_FILE", 10)
    for path in (
        draw.zip(tmp_path / "a.zip", {"a/0.png": bytes(11)}),
        draw.tar(tmp_path / "a.tar", {"a/0.png": bytes(11)}),
    ):
        with pytest.raises(ValueError, match=r"a/0.png has .* MiB"):
            open_source(path).read("a/0.png")


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_truncated_tar_is_refused(tmp_path, draw, mode):
    path = draw.tar(tmp_path / "a.tar", draw.classes(), mode)
    content = path.read_bytes()
    for part in (0.1, 0.5, 0.7):
        path.write_bytes(content[: int(len(content) * part) - 100])
        refused(path, "not a readable zip or tar archive")


def test_damaged_header_is_not_taken_for_the_end(tmp_path, draw):
    path = draw.tar(tmp_path / "a.tar", draw.classes(), "w:")
    content = bytearray(path.read_bytes())
    at = content.index(b"c/0.png")
    content[at : at + 7] = b"d/1.png"
    path.write_bytes(content)
    refused(path, "damaged")


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b", b"PK\x05\x06"])
def test_file_that_is_no_archive_is_named(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    refused(path, "not a readable zip or tar archive")


def test_missing_source_is_named(tmp_path):
    refused(tmp_path / "nowhere", "does not exist")


def test_damaged_member_of_a_zip_is_noticed(tmp_path, draw):
    content = draw.png(0)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a/0.png", content)
    damaged = (tmp_path / "a.zip").read_bytes().replace(content[-40:-20], bytes(20))
    (tmp_path / "a.zip").write_bytes(damaged)
    source = open_source(tmp_path / "a.zip")
    with pytest.raises(ValueError, match=r"a/0.png in .*Bad CRC"):
        source.read("a/0.png")
    source.close()
