"""Training: recipes, data, run folders, and the loop that ties them to a device."""

from emu.training.recipe import Recipe, load_recipe, model_names

__all__ = ["Recipe", "load_recipe", "model_names"]
