"""What is wanted: frozen, strict models of every YAML file, and the reader that checks them."""
