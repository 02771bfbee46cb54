"""`cached_property`: an attribute that is made when it is first asked for."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - as its base
        """That of Python 3.12 and later. Before, one lock of a class held while a value was made made all its objects wait.

        What is read from a network must not wait so, and a process that was forked meanwhile would wait for ever. Two threads may
        both make a value; all get the first.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None or self.attrname is None:
                return super().__get__(instance, owner)
            kept = instance.__dict__
            if self.attrname in kept:
                return kept[self.attrname]
            return kept.setdefault(self.attrname, self.func(instance))
