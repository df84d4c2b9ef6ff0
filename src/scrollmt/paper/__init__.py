"""The arena: the paper's protocol, its studies, and what they found."""
