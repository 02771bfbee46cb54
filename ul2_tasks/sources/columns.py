"""The columns and fields of files: those that are wanted are there, and hold texts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ul2_tasks.sources.files import OF_TOKENS, Layout

_TEXT_KINDS = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)


class ColumnsError(ValueError):
    """A file has no column of texts."""


def check_kind(where: str, schema: pa.Schema, layout: Layout) -> None:
    """Raises a ColumnsError where the column of the text is there, and no value of its type is a document."""
    if layout.text_key in schema.names and (kind := _other_kind(schema.field(layout.text_key).type, layout)):
        raise no_texts(where, layout, f"values of type {kind}")


def no_texts(where: str, layout: Layout, got: str) -> ColumnsError:
    option, of = ("messages_key", "messages") if layout.as_json else ("text_key", "texts")
    return ColumnsError(f"{option} must be a field of {of}, got {layout.text_key!r}, in {where} {got}. {OF_TOKENS}")


def check_fields(where: str, present: Sequence[str] | None, layout: Layout) -> None:
    """Raises a ColumnsError where `present`, the fields that are there, lacks one that is wanted. None is unknown, and passes."""
    if present is not None and (missing := layout.missing(present)):
        text, beside = "messages_key" if layout.as_json else "text_key", ("loss_weight_key", "group_by")
        option = next((name for name in beside if getattr(layout, name) == missing), "id_key")
        option = text if missing == layout.text_key else option
        raise ColumnsError(
            f"{where} has no field {missing!r}, only {list(present)}. Pass {option}, one of these. See"
            " docs/help/troubleshooting.md#a-field-is-missing."
        )


def columns_read(where: str, schema: pa.Schema, layout: Layout) -> list[str] | None:
    """The columns that are read; None for all. Raises a ColumnsError where there is no column of texts."""
    if layout.whole:
        return None
    check_fields(where, schema.names, layout)
    check_kind(where, schema, layout)
    return [name for name in dict.fromkeys(layout.read) if name in schema.names]


def _other_kind(kind: pa.DataType, layout: Layout) -> str | None:
    """The type of a column in words, where its values are no documents."""
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_read = any(is_kind(kind) for is_kind in _TEXT_KINDS) or (pa.types.is_nested(kind) if layout.as_json else is_ids(kind))
    return None if is_read else str(kind)


def is_ids(kind: pa.DataType) -> bool:
    """Whether the values of a column are lists of integers."""
    are_lists = any(is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))
    return are_lists and pa.types.is_integer(kind.value_type)
