"""Code for the papers and the built-in data, which few users of `distill` need.

Nothing in the core imports it: `limbeck.support.registry` loads it as it loads an installed package. This file
declares which of its modules register what.
"""

from limbeck.support.registry import register_later

register_later("command", "limbeck.lab.commands")
register_later(
    "data reader", "limbeck.lab.cifar", "limbeck.lab.digits", "limbeck.lab.pocket.generate"
)
register_later("augmentation", "limbeck.lab.augmentation")
register_later("function", "limbeck.lab.submitting")
register_later("learned sampling", "limbeck.lab.bandit")
register_later("named CNN", "limbeck.lab.cifar_nets")
register_later("toy model", "limbeck.lab.pocket.pocket_models")
register_later("settings for data", "limbeck.lab.data_settings")
register_later("part of a run's page", "limbeck.lab.views.analysis_views")
