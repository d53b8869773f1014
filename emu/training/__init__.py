"""Training: recipes, data, run folders, and the loop that ties them to a device."""
