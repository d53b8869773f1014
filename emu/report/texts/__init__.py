"""One file per part of a report that is words and tables: each has a `section(evidence)`."""
