"""Speed, measured: every row is emu's work beside the machine's limit and beside peers, in one run.

    row      what is computed, its limit, what we aim at           rows/
    worker   one process per number of threads and BLAS kernel     worker.py, processes.py
    timing   the sides alternate; medians and quartiles of ratios  timing.py, pinning.py
    table    text for the terminal, Markdown for the page          verdict.py, text_table.py, markdown.py

A figure is a ratio of two times taken within the same second: absolute speed drifts, the ratio stays.
"""
