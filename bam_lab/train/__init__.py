"""Training: optimizer, schedule, resumable loop on Lightning's Trainer."""
