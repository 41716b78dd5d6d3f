"""The `bam-lab` command: one file a verb, nothing heavy imported before a verb needs it."""
