"""Studies that go beyond the paper, by its protocol: they judge none of its claims."""

from scrollmt.paper.beyond import comparators
from scrollmt.paper.beyond.base import BeyondStudy

STUDIES = {study.name: study for study in (comparators.STUDY,)}

__all__ = ["STUDIES", "BeyondStudy", "comparators"]
