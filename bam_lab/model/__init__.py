"""The transformer and its mixtures in pure PyTorch: modules return what they computed."""
