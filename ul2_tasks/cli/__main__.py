"""`python -m ul2_tasks.cli` is the command `ul2`, for when `ul2` is not on the path."""

from ul2_tasks.cli import main

if __name__ == "__main__":
    main(prog_name="ul2")
