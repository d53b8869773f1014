"""The arithmetic contract as a test of a unit of your own: clauses, cases, units, findings."""
