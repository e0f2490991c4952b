"""Where graphs come from: generators, networks, serving mixes, imported models, and their descriptions."""
