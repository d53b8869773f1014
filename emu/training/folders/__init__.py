"""Folders of runs and studies: their files, tables and checkpoints."""
