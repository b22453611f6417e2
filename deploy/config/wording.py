"""pydantic's faults of a setting, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# By pydantic's types of errors; what stands in braces is its own context. The value is never shown: it may be a secret.
WORDS = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "path_type": "must be a path",
    "dict_type": "must hold keys and values, such as {{key: value}}",
    "tuple_type": "must be a list, such as [a, b]",
    "list_type": "must be a list, such as [a, b]",
    "model_type": "must hold keys and values, such as {{key: value}}",
    "model_attributes_type": "must hold keys and values, such as {{key: value}}",
    "literal_error": "must be one of {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "too_short": "must not be empty",
    "missing": "is needed",
    "string_pattern_mismatch": "must be lower-case letters, digits and dashes, at most 63, no dash first",
}
OURS = "Value error, "


def explained(item: ErrorDetails) -> str:
    """Return one fault as pydantic reports it, in our words; in its own where we have none."""
    words = WORDS.get(item["type"])
    if words is None:
        return str(item["msg"]).removeprefix(OURS)
    return words.format(**item.get("ctx", {}))
