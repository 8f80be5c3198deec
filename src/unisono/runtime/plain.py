"""Text of others, for the runtime; see `unisono.trace.plain`."""

from unisono.trace.plain import cut, is_text, json_text, plain, plain_lines

__all__ = ["cut", "is_text", "json_text", "plain", "plain_lines"]
