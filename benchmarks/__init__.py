"""Speed, measured: every row is emu's work beside the machine's limit and beside peers, in one run.

    command  `python -m benchmarks`                                __main__.py, measuring/command.py, measuring/bar.py
    row      what is computed, its limit, what we aim at           rows/
    peer     a package that does a row's work, too                 peers/
    worker   one process per number of threads and BLAS kernel     measuring/worker.py, measuring/processes.py
    timing   the sides alternate; medians and quartiles of ratios  measuring/timing.py, measuring/pinning.py
    table    text for the terminal, Markdown for the page          measuring/verdict.py, sheets.py, markdown.py

A figure is a ratio of two times taken within the same second: absolute speed drifts, the ratio stays.
"""
