"""`ul2 doctor` of conversations: finds problems before a corpus is built, and how to fix each."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ul2_tasks.chat.choices import UNTRAINED
from ul2_tasks.chat.segments import kind_name, kind_of
from ul2_tasks.chat.supervision import TOOL_CALL
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.inspect.conversations.drawing import AT_A_TIME, budgets, read_examples, that_drops
from ul2_tasks.inspect.conversations.records import Rendered, cause, in_memory, records, render
from ul2_tasks.inspect.findings import About, Finding, examine_ids, first_words, left_out
from ul2_tasks.inspect.printing import kinds_lost
from ul2_tasks.inspect.statistics import Tally
from ul2_tasks.inspect.tasks import ChatTask, chat_tasks
from ul2_tasks.tokenizers.o200k import FILE, SHA256, O200kVocabulary
from ul2_tasks.tokenizers.special_ids import check_round_trip

if TYPE_CHECKING:
    from ul2_tasks.mixtures.description import Description
    from ul2_tasks.mixtures.mix import Mix

LOOKED_AT = 1000  # records
_LOOKED_AT_FOR_A_SPLIT = 100_000  # records, before a split is called empty


class _Seen(NamedTuple):
    """What was read of a corpus: the conversations that were rendered, the records that were rejected, by cause, and those whose
    package is missing, by error."""

    conversations: list[Rendered]
    rejected: Tally
    missing: collections.Counter[str]

    @property
    def records(self) -> int:
        """How many records were read."""
        return len(self.conversations) + self.rejected.counts.total() + self.missing.total()


def examine_conversations(
    chats: Description | Mix, sequence_length: Mapping[str, int | None], split: str = "train"
) -> Iterator[Finding]:
    """Checks the tokenizer, 1,000 conversations of each corpus, and the lengths."""
    tasks = chat_tasks(chats, sequence_length)
    lengths = {task.name: budgets(task, sequence_length) for task in tasks}
    for corpus in {task.corpus.name: task.corpus for task in tasks}.values():
        about = functools.partial(Finding, concerns=(corpus.name,))
        found = list(_examine_tokenizer(corpus, about))
        yield from found
        if any(finding.kind == "problem" for finding in found):
            continue
        try:
            seen = _read(corpus, split)
        except (ValueError, OSError) as error:
            yield about("problem", "corpus", first_words(error), "fix it, or name other files")
            continue
        yield from _examine_rejected(corpus, seen, about)
        if not seen.conversations:
            what = f"no conversation in the first {seen.records:,} records of split {split!r}"
            yield about("problem", "corpus", what)
            continue
        yield from _examine_repeats(seen.conversations, about)
        yield from _examine_validation(corpus, split, about)
        for task in tasks:
            if task.corpus.name == corpus.name:
                yield from _examine_task(task, seen.conversations, lengths[task.name])


def _read(corpus: Corpus, split: str) -> _Seen:
    seen = _Seen([], Tally(), collections.Counter())
    for record in itertools.islice(records(corpus, split), LOOKED_AT):
        try:
            rendered = render(corpus, record)
        except ImportError as error:
            seen.missing[str(error)] += 1
            continue
        if rendered.problem:
            seen.rejected.add(cause(rendered.problem), rendered.problem)
        else:
            seen.conversations.append(rendered)
    return seen


def _examine_tokenizer(corpus: Corpus, about: About) -> Iterator[Finding]:
    vocabulary = corpus.vocabulary
    if isinstance(vocabulary, O200kVocabulary):
        try:
            path = vocabulary.path
            vocabulary.encode("a")
        except (ValueError, ImportError) as error:
            yield about("problem", "vocabulary", str(error))
            return
        yield about("ok", "vocabulary", f"{FILE} is {path}, SHA-256 {SHA256}")
    yield about("ok", "vocabulary", f"{corpus.encoder.renderer.identity}; {vocabulary.vocab_size:,} ids")
    yield from (dataclasses.replace(found, concerns=(corpus.name,)) for found in examine_ids(vocabulary))
    if lost := check_round_trip(corpus.tokenizer):
        what = f"decoding does not restore {kinds_lost(lost)}"
        yield about("note", "vocabulary", what, "use another vocabulary, if the text needs it")


def _examine_rejected(corpus: Corpus, seen: _Seen, about: About) -> Iterator[Finding]:
    for problem, number in seen.missing.items():
        yield about("problem", "installation", f"{number:,} of {seen.records:,} conversations cannot be rendered: {problem}")
    skips = corpus.configuration.on_error == "skip"
    kind, remedy = left_out(skips, "fix them, or leave them out with --on_error skip (on_error='skip')")
    for why, number in seen.rejected.counts.most_common():
        first = seen.rejected.first[why]
        yield about(kind, "corpus", f"{number:,} of {seen.records:,} records are rejected, the first: {first}", remedy)
    if seen.conversations:
        messages = sum(len(one.messages) for one in seen.conversations)
        yield about("ok", "corpus", f"{len(seen.conversations):,} conversations of {messages:,} messages were read")
    unread = collections.Counter(name for one in seen.conversations for name in one.unread)
    if unread:
        named = ", ".join(f"{name} ({count:,})" for name, count in unread.most_common())
        yield about("note", "corpus", f"fields of records that nothing reads, and how many have them: {named}")


def _examine_repeats(conversations: Sequence[Rendered], about: About) -> Iterator[Finding]:
    """Looks for conversations with the id, or the tokens, of an earlier one."""
    tokens = [str([part.ids for part in one.segments]) for one in conversations]
    for what, remedy, keys in (
        ("have the id of an earlier one", "make ids unique, because splits depend on them", [one.id for one in conversations]),
        ("are the same as an earlier one", "leave out the copies", tokens),
    ):
        first_of: dict[object, int] = {}
        wrong = [
            one for number, one in enumerate(conversations) if keys[number] and first_of.setdefault(keys[number], number) < number
        ]
        if wrong:
            first = f", the first: {wrong[0].where}" if wrong[0].where else ""
            yield about("note", "corpus", f"{len(wrong):,} of {len(conversations):,} conversations {what}{first}", remedy)


def _examine_validation(corpus: Corpus, split: str, about: About) -> Iterator[Finding]:
    for other in corpus.splits:
        if other != split and next(records(corpus, other, _LOOKED_AT_FOR_A_SPLIT), None) is None:
            remedy = "raise validation, or name files for it, because an export of an empty split cannot be opened"
            yield about("note", "corpus", f"split {other!r} has no record among the first {_LOOKED_AT_FOR_A_SPLIT:,}", remedy)


def _examine_task(task: ChatTask, conversations: Sequence[Rendered], lengths: Mapping[str, int | None]) -> Iterator[Finding]:
    """Checks which tokens are trained on, and the lengths."""
    about = functools.partial(Finding, concerns=(task.name,))
    groups: Mapping[str, int] = task.supervision.loss_groups  # type: ignore[assignment]  # a mapping by now
    kinds = Tally()
    for number, one in enumerate(conversations):
        for segment in one.segments:
            if segment.role == "assistant":
                kind = kind_name(kind_of(segment.role, segment.channel, segment.to_tool))
                kinds.add(kind, one.where or f"conversation {number}")
    if unknown := {kind: TOOL_CALL for kind in sorted(kinds.counts) if kind not in groups}:
        counts = ", ".join(f"{kinds.counts[kind]:,} {kind} (the first: {kinds.first[kind]})" for kind in unknown)
        remedy = f"pass loss_groups={ {**groups, **unknown} }, with 0 for context"
        yield about("problem", "corpus", f"loss_groups has no group for these messages: {counts}", remedy)
        return
    reader = in_memory(task.corpus, conversations)
    numbers = np.arange(reader.count)
    parts = [numbers[start : start + AT_A_TIME] for start in range(0, len(numbers), AT_A_TIME)]
    drops = that_drops(task)
    any_length = [read_examples(drops, reader, part, dict.fromkeys(lengths)) for part in parts]
    left_out = sum((counts for _, counts in any_length), collections.Counter())
    if nothing := left_out[UNTRAINED]:
        yield about("note", "lengths", f"{nothing:,} examples are left out, {UNTRAINED}", "check their messages")
    examples = [example for found, _ in any_length for example in found]
    if not examples:
        what = f"no example of {len(conversations):,} conversations has a token to train on"
        yield about("problem", "lengths", what, "pass other loss_groups")
        return
    needed = {key: [example.lengths[key] for example in examples] for key in lengths}
    ninety_nine = {key: int(np.percentile(values, 99, method="higher")) for key, values in needed.items()}
    shown = ", ".join(f"{key} {ninety_nine[key]:,} (the longest {max(values):,})" for key, values in needed.items())
    yield about("ok", "lengths", f"{len(examples):,} examples; 99 % of them have at most: {shown}")
    at_lengths = sum((read_examples(drops, reader, part, lengths)[1] for part in parts), collections.Counter())
    yield from _examine_budgets(task, lengths, at_lengths, ninety_nine, about)


def _examine_budgets(
    task: ChatTask, lengths: Mapping[str, int | None], counts: Mapping[str, int], ninety_nine: Mapping[str, int], about: About
) -> Iterator[Finding]:
    longer = ",".join(map(str, ninety_nine.values()))
    if too_long := counts.get("too long"):
        ends = task.supervision.truncation == "raise"
        also = ", or truncation='drop' or 'drop_oldest_turns'" if ends else ""
        what = f"{too_long:,} examples are longer than {dict(lengths)}, and {'raise an error' if ends else 'are dropped'}"
        yield about("problem" if ends else "note", "lengths", what, f"--lengths {longer} holds 99 % of them{also}")
    if shortened := counts.get("shortened"):
        what = f"{shortened:,} examples lose their oldest turns at {dict(lengths)}"
        yield about("note", "lengths", what, f"--lengths {longer} keeps more")
