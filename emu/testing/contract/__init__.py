"""The arithmetic contract as a test of somebody's own unit: clauses, cases, the units asked, what was found."""
