"""How well rankers do, what they cost, and what they are blind to: analyses over runs and over pairs of documents."""
