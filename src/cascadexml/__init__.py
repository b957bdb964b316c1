"""CascadeXML: texts matched to the right few of thousands or millions of labels, by one transformer and a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cascadexml.classifier import CascadeXML

__version__ = "0.1.0"
__all__ = ["CascadeXML", "__version__"]


def __getattr__(name: str) -> Any:
    # torch and transformers take seconds to import, so the class is fetched when it is first asked for
    if name == "CascadeXML":
        from cascadexml.classifier import CascadeXML

        return CascadeXML
    raise AttributeError(f"module 'cascadexml' has no attribute {name!r}")
