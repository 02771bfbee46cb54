"""`python -m ul2_tasks` is the command `ul2`."""

from ul2_tasks.cli import main

if __name__ == "__main__":
    main(prog_name="ul2")
