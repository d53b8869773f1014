"""Training: recipes, data, run folders, and the loop that trains on a device."""

from emu.training.evaluation import evaluate
from emu.training.loop.begin import resume, train
from emu.training.loop.run import Progress, Run
from emu.training.recipe import Recipe, load_recipe, model_names

__all__ = ["Progress", "Recipe", "Run", "evaluate", "load_recipe", "model_names", "resume", "train"]
