"""`python -m scrollmt` is the command line."""

from scrollmt.cli import app

if __name__ == "__main__":
    app()
