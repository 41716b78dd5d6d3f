"""Put documents in an order: which ones share a training sequence."""
