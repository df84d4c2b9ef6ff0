"""Files and folders: one lock, one atomic writer, bounded reading. Nothing here knows a model."""
