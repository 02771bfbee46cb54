"""`python -m ul2_tasks` is the command `ul2`."""

from ul2_command import main

main(prog_name="ul2")
