"""The paper's comparison: its arms, the arena that runs them, its studies, and their tables."""

# Modules that version 0.1 documents under other names; each warns when it is imported.
__path__ = [*__path__, *(f"{folder}/../_moved/paper" for folder in __path__)]
