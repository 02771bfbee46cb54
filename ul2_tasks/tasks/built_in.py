"""What SeqIO and gin have of this package: `ul2_mix` with its tasks in SeqIO's registries, and the presets as constants of gin."""

import gin

from ul2_tasks.denoisers.denoisers import PRESETS
from ul2_tasks.tasks.registry import register

for name, preset in PRESETS.items():
    gin.constant(f"ul2_tasks.{name}", preset)  # in a gin file: `ul2_tasks.register.denoisers = %ul2_tasks.UL2R`
register()
