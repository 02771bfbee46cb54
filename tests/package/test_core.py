"""The wall around the core: it needs neither SeqIO nor TensorFlow. `test_layers.py` says that none of it looks for them."""

from tests import programs


def test_where_seqio_and_tensorflow_raise_the_core_is_imported_makes_each_kind_of_data_and_has_its_commands(tmp_path):
    programs.run("-m", "tests.package.core", tmp_path, check=True)
