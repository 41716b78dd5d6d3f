"""Turn sources into domains: clean, distinct, honestly held out, written once."""
