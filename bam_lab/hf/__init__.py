"""Models of Hugging Face's families, in and out."""
