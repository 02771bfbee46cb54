"""`python -m ul2_tasks` is the command `ul2`."""

from ul2_tasks.cli import program

if __name__ == "__main__":
    program()
