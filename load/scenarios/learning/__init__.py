"""How soon and how fast feedback is learnt."""
