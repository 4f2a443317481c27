"""Programs that are kept between starts: where, by whom, and that none can break anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskmix import compiled
from taskmix.compiled import _make_room, cache_folder, versioned_folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TASKMIX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.skipif(sys.platform != "linux", reason="where it is depends on the system")
def test_folder_is_where_the_system_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.delenv("TASKMIX_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "taskmix"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/taskmix")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_folder() == tmp_path / ".cache" / "taskmix"


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no"])
def test_environment_turns_it_off(monkeypatch, word):
    monkeypatch.setenv("TASKMIX_CACHE", word)
    assert cache_folder() is None
    assert versioned_folder() is None


def test_other_versions_and_processors_have_other_folders(cache, monkeypatch):
    first = versioned_folder()
    monkeypatch.setattr(compiled, "processor", lambda: "another one")
    second = versioned_folder()
    monkeypatch.setattr(compiled, "version", lambda package: "99")
    assert len({first, second, versioned_folder()}) == 3


def test_options_that_this_xla_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setattr(compiled, "QUICKLY", {**compiled.QUICKLY, "xla_cpu_was_there_once": True})
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    found = compiled.quickly()
    assert "xla_cpu_was_there_once" not in found
    assert found["xla_backend_optimization_level"] == 1


def test_folder_is_for_its_owner_alone(cache):
    old = os.umask(0)
    try:
        folder = versioned_folder()
    finally:
        os.umask(old)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("which", ["top", "versioned"])
def test_folder_that_others_can_write_to_is_not_used(cache, which):
    folder = versioned_folder()
    (cache if which == "top" else folder).chmod(0o777)
    assert versioned_folder() is None


def test_link_is_not_followed_to_programs_of_others(cache, tmp_path):
    folder = versioned_folder()
    folder.rmdir()
    (tmp_path / "theirs").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "theirs")
    assert versioned_folder() is None


def test_file_in_the_place_of_the_folder_is_no_error(cache):
    cache.write_text("not a folder")
    assert versioned_folder() is None


def test_programs_not_used_for_longest_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "LARGEST", 100)
    for age in range(4):
        (tmp_path / f"{age}").write_bytes(bytes(30))
        os.utime(tmp_path / f"{age}", (1000 - age, 1000 - age))
    _make_room(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


PROGRAM = """
import taskmix, jax, jax.numpy as jnp, numpy as np
from taskmix import compiled
compiled.WORTH_KEEPING = 0.0
assert compiled.keep_programs()
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
print(jax.jit(lambda x: jnp.sum(jnp.tanh(x) @ x))(jnp.ones((3, 3))))
"""


def test_program_is_kept_and_a_spoiled_one_breaks_nothing(cache):
    """One start writes it, the next reads it, and one that finds it cut short compiles anew.

    None of them says anything about it: the compiler's messages about kept programs are long.
    """
    environment = {**os.environ, "TASKMIX_CACHE": str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)

    def said() -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-W", "error::RuntimeWarning", "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout, done.stderr

    first = said()
    entries = list(cache.glob("*/programs/*-cache"))
    assert entries
    assert said() == first
    assert first[1] == ""
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:100])
    assert said() == first
