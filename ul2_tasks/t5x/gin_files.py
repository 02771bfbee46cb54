"""Where the gin files are: `python -m ul2_tasks.t5x.gin_files` prints the folder for t5x's `--gin_search_paths`."""

from __future__ import annotations

import pathlib


def search_path() -> pathlib.Path:
    """The folder that holds `gin/ul2.gin`: this package where it is installed, and the repository's root in a checkout."""
    package = pathlib.Path(__file__).parent.parent
    return package if (package / "gin").is_dir() else package.parent


if __name__ == "__main__":
    print(search_path())
