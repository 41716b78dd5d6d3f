"""What a stage leaves on disk, who may write it, and how it is identified. No torch."""
