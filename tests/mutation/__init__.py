"""Mutation check: do the tests notice when one place of the arithmetic is wrong?

    sources ──► seeded mutants ──► each against its own tests, in a process that sees it ──► killed, survived, timed out

    python -m tests.mutation --mutants 100 --seed 1 --workers 2

`mutants.py` makes them, `draw.py` chooses, `own_tests.py` says who judges, `process.py` and `child.py` run, `page.py`
writes docs/mutation.md, `judged.toml` keeps what was said about survivors.
"""
