"""Writes the tokens of a corpus as a dataset of Megatron-LM's: one pair of files, PREFIX.bin and PREFIX.idx."""

from __future__ import annotations

from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.token_batches import corpus_documents, files_of, stored_dtype
from ul2_tasks.files.atomic import removed_on_failure
from ul2_tasks.files.systems import absolute, exists, move, place
from ul2_tasks.jobs.claim import taken
from ul2_tasks.jobs.shards import remove_records
from ul2_tasks.store.provenance import TABLE, TableWriter, add_origins
from ul2_tasks.store.write import PairWriter


def write_megatron(
    corpus: Corpus, output: str, split: str = "train", *, use_cached: bool = False, append_eod: bool = True
) -> dict[str, object]:
    """Writes CORPUS-SPLIT.bin and CORPUS-SPLIT.idx, which Megatron-LM opens as `--data-path OUTPUT/CORPUS-SPLIT`.

    Ids are the tokenizer's own. Documents come in the order of the corpus, or of its cache. `output` is a folder, local or remote,
    that may hold others of such pairs. With `append_eod` the vocabulary's EOS ends each document, as
    `preprocess_data.py --append-eod` has it. Megatron-LM finds the borders of documents by it. CORPUS-SPLIT.origins.arrow says
    where each document is from, see `store.provenance`; there is none for a cache without.

    Returns "prefix", "documents" and "tokens". Raises a ValueError where the files are there already, another job writes them, the
    split has no document, or the vocabulary has no EOS.
    """
    vocabulary = corpus.vocabulary
    if append_eod and vocabulary.eos_id is None:
        raise ValueError(
            f"append_eod must be False with {vocabulary}, which has no EOS to end documents with. Set append_eod=False."
        )
    folder = absolute(output)
    prefix = place(folder, f"{corpus.name.removesuffix('_corpus')}-{split}")
    paths = f"{prefix}.bin", f"{prefix}.idx", f"{prefix}.{TABLE}"
    records = f"{prefix}_parts"
    temporary = place(records, "bin.tmp"), place(records, "idx.tmp"), place(records, "origins.tmp")
    with taken(records) as check, removed_on_failure(*temporary, where=prefix):
        if present := [path for path in paths if exists(path)]:
            raise ValueError(f"the output must be a new folder, but {present[0]} exists. Delete it, or name another folder.")
        remove_records(records)  # of a job that was killed
        files = files_of(corpus, split, use_cached)
        bin_path, idx_path, table_path = temporary
        end = vocabulary.eos_id if append_eod else None
        with PairWriter(bin_path, idx_path, stored_dtype(corpus), end) as pair, TableWriter(table_path, files or []) as table:
            for documents in corpus_documents(corpus, split, use_cached):
                pair.add(documents.tokens, documents.lengths)
                if documents.origins and files is not None:
                    add_origins(table, files, documents.origins())
                check()
        if not pair.documents:
            raise ValueError(
                f"{corpus.name!r} has no document in split {split!r}, and Megatron-LM opens no empty dataset. Name another split,"
                " or change how documents are split."
            )
        check()
        for written, path in zip(temporary, paths):
            if written != table_path or table.entry:
                move(written, path)
    return {"prefix": prefix, "documents": pair.documents, "tokens": pair.tokens}
