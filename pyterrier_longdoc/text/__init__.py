"""From texts to token ids, and from token positions back to characters."""
