"""How Overnight speaks to model servers."""
