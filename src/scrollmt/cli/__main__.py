"""`python -m scrollmt.cli`, where the script is not on the path."""

from scrollmt.cli import app

app(prog_name="scrollmt")
