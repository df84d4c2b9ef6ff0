"""Where the reproduction goes against the paper's text, as a list for its pages."""

from __future__ import annotations

from scrollmt.paper.data import published
from scrollmt.paper.protocol import PROTOCOL, Protocol


def departures(protocol: Protocol = PROTOCOL) -> str:
    """The departures under a protocol as Markdown, one line each."""
    constants = vars(protocol)
    return "\n".join(
        f"- {entry['what']}. {entry['text']}"
        for entry in published.words("departures")["departure"]
        if "field" not in entry or constants[entry["field"]] == entry["value"]
    )
