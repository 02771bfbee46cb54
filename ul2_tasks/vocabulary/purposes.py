"""What special tokens are for, by their names: those that a model or another library needs are no sentinels and no modes.

A tokenizer has no field that says so. Its files name some tokens in a role (`tokenizer_json.roles`); most of the others have names
that are alike in all models:

    <|im_start|>  <think>  <tool_call>  <|fim_prefix|>  <start_of_image>  <loc0000>  [MASK]        taken
    <unused0>  <extra_id_0>  [unused1]  <SPECIAL_9>  <|reserved_200020|>  [R]  <my_sentinel_0>     free
"""

from __future__ import annotations

import functools
import re

_SIGNS = "<>|｜[]{}/@ ▁"  # what stands around the words of a name
# Whole names, without the signs around them.
_WHOLE = {
    "for the beginning or the end of a text": "bos eos eot eod eom startoftext endoftext begin_of_text end_of_text"
    " begin_of_sentence end_of_sentence eot_id eom_id endofprompt",
    "for padding, for what is unknown, or for another objective": "pad padding finetune_right_pad_id unk unknown cls sep mask",
    "a part of conversations": "start end message channel constrain call return",
}
# Words, wherever they are in a name.
_WORDS = {
    "a part of conversations": "im turn role header inst user assistant system chatbot",
    "for thinking": "think thinking thought",
    "for tools": "tool tools python",
    "for filling in code": "fim repo reponame file filename commit jupyter issue gh",
    "for images, audio, video or places": "image images img vision video audio speech multimodal boi eoi object box quad loc seg",
}
# Names in angle brackets alone: "[S]" is a mode.
_TAGS = {
    "for the beginning or the end of a text": "s",
    "for text": "table caption thead tbody tfoot tr th td h1 h2 h3 h4 h5 h6 blockquote strong em b i u sub sup code",
}
_BY_NAME, _BY_WORD, _BY_TAG = (
    {name: purpose for purpose, names in table.items() for name in names.split()} for table in (_WHOLE, _WORDS, _TAGS)
)


@functools.lru_cache(maxsize=1 << 14)  # a vocabulary's sentinels are looked at for each denoiser
def purpose_of(name: str) -> str | None:
    """What a special token of this name is for, if that is not UL2's to decide.

    >>> purpose_of("</think>"), purpose_of("<start_of_turn>"), purpose_of("<loc0000>"), purpose_of("</s>")
    ('for thinking', 'a part of conversations', 'for images, audio, video or places', 'for the beginning or the end of a text')
    >>> purpose_of("<|reserved_200020|>"), purpose_of("[S]")
    (None, None)
    """
    if is_word(name):
        return "for text"
    if tag := re.fullmatch("</?([a-z0-9]+)>", name):
        return _BY_TAG.get(tag[1]) or _named(tag[1])
    return _named(name.strip(_SIGNS).replace("▁", "_").lower())


def _named(whole: str) -> str | None:
    return _BY_NAME.get(whole) or next((_BY_WORD[word] for word in re.findall("[a-z]+", whole) if word in _BY_WORD), None)


def is_unused(name: str) -> bool:
    """Whether a name says that the token is there for what users need: BERT's have no other sign of it.

    >>> is_unused("[unused17]"), is_unused("<unused0>"), is_unused("unused")
    (True, True, False)
    """
    return bool(re.fullmatch(r"\[unused_?\d+\]|<unused_?\d+>", name))


def is_word(name: str) -> bool:
    """Whether an added token is there for text: a word or, in some tokenizers, a run of spaces.

    >>> is_word("New York"), is_word("\\n\\n"), is_word("▁▁"), is_word("<think>")
    (True, True, True, False)
    """
    return all(letter.isalnum() or letter.isspace() or letter == "▁" for letter in name)
