"""The architectures, in pure PyTorch: one file each, a config and a model.

Nothing here knows of pandas or PyTerrier. A model takes token ids and gives scores; the rankers of the floor above turn
frames into ids and scores into frames.
"""
