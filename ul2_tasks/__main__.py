"""`python -m ul2_tasks`: the default mixture over the embedded corpus, as text."""

from ul2_tasks.show import show

if __name__ == "__main__":
    show("ul2_mix", {"inputs": 96, "targets": 96})
