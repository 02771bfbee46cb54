"""What needs an extra says which, where none is installed; and all else works."""

from tests import programs


def test_what_needs_an_extra_names_it_and_all_else_works_without_any(tmp_path):
    programs.run("-m", "tests.package.extras", tmp_path, check=True)
