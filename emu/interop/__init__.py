"""Networks from elsewhere, one package for each kind of file."""
