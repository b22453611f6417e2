"""ParM (SOSP 2019): late outputs decoded, and hedging beside it."""
