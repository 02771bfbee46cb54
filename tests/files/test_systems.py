"""One layer for the files of every file system."""

import hashlib
import os

import pytest

from ul2_tasks.files.listing import contents, list_files, stamps
from ul2_tasks.files.opening import open_file
from ul2_tasks.files.systems import (
    exists,
    file_system,
    is_folder,
    make_folders,
    move,
    names_in,
    open_to_write,
    place,
    read,
    remove,
    remove_tree,
    sha256,
    size,
)

SYSTEMS = ("local", "file://", "memory://")  # the last moves as fsspec does for any system


@pytest.fixture(params=SYSTEMS)
def folder(request, tmp_path):
    """A folder that is there, and empty."""
    name = request.node.name.translate(str.maketrans("[]:/", "____"))
    path = {"local": str(tmp_path), "file://": f"file://{tmp_path}"}.get(request.param, f"{request.param}{name}")
    make_folders(path)
    return path


def write(path: str, content: bytes) -> str:
    with open_to_write(path) as file:
        file.write(content)
    return path


def test_a_file_is_made_read_moved_over_another_and_removed(folder):
    path, other = write(place(folder, "a.txt"), b"one"), write(f"{folder}/b.txt", b"two, longer")
    assert (read(path), size(path), exists(path), is_folder(path)) == (b"one", 3, True, False)
    assert sha256(path) == hashlib.sha256(b"one").hexdigest()
    move(path, other)
    assert (read(other), exists(path)) == (b"one", False)
    write(path, read(other))
    assert names_in(folder) == {"a.txt", "b.txt"}
    remove(other)
    assert names_in(f"{folder}/") == {"a.txt"}
    assert [name.rpartition("/")[2] for name in list_files(folder)] == ["a.txt"]


def test_a_folder_is_made_with_those_above_it_and_removed_with_what_is_in_it(folder):
    below = place(folder, "of/one")
    make_folders(below)
    make_folders(below)
    write(place(below, "a.txt"), b"a")
    assert names_in(folder) == {"of"}
    assert is_folder(place(folder, "of"))
    remove_tree(place(folder, "of"))
    assert names_in(folder) == set()
    assert names_in(place(folder, "of")) == set(), "there is no such folder"


def test_brackets_in_names_are_no_globs(folder):
    """`a[1].txt` as a glob would name the other file, `a1.txt`."""
    inside = place(folder, "of[1]")
    make_folders(place(inside, "empty[2]"))
    path, other, beside = (write(place(inside, name), name.encode()) for name in ("a[1].txt", "a1.txt", "b[1].txt"))
    neighbour = write(place(folder, "of1"), b"of1")
    assert names_in(inside) == {"a[1].txt", "a1.txt", "b[1].txt", "empty[2]"}
    assert [name.rpartition("/")[2] for name in list_files(path)] == ["a[1].txt"]
    move(path, beside)
    assert (exists(path), read(beside), read(other)) == (False, b"a[1].txt", b"a1.txt")
    remove(beside)
    assert names_in(inside) == {"a1.txt", "empty[2]"}
    remove_tree(inside)
    assert (names_in(folder), is_folder(inside), read(neighbour)) == ({"of1"}, False, b"of1")


def test_a_chained_address_is_one_of_its_last_protocol(tmp_path):
    folder = f"simplecache::memory://{tmp_path.name}/of[1]"
    path, moved = write(place(folder, "a[1].txt"), b"one"), place(folder, "b[1].txt")
    move(path, moved)
    assert (names_in(folder), read(moved), size(moved)) == ({"b[1].txt"}, b"one", 3)
    assert list(map(read, list_files(folder))) == [b"one"]
    remove_tree(folder)
    assert not exists(folder)
    with pytest.raises(ValueError, match="nothing"):
        file_system("simplecache::nothing://a/b")


def test_a_local_link_is_removed_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a.txt").write_text("a")
    (tmp_path / "of[1]").mkdir()
    (tmp_path / "of[1]" / "link").symlink_to(tmp_path / "kept")
    remove_tree(str(tmp_path / "of[1]"))
    assert sorted(os.listdir(tmp_path)) == ["kept"]
    assert os.listdir(tmp_path / "kept") == ["a.txt"]


def test_what_is_not_there_is_an_os_error(folder):
    path = place(folder, "nothing.txt")
    assert not exists(path)
    for call in (read, size, remove, lambda path: stamps([path]), lambda path: open_file(path).read()):
        with pytest.raises(FileNotFoundError):
            call(path)


def test_a_changed_file_is_told(folder):
    path = write(place(folder, "a.txt"), b"one")
    before = stamps([path]), contents([path])
    assert (stamps([path]), contents([path])) == before
    write(path, b"another")
    assert stamps([path]) != before[0]
    assert contents([path]) != before[1]
