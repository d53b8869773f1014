"""One file per picture: each has a `section(evidence)` that returns its part of the page."""
