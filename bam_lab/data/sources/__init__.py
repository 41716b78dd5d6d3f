"""Read where text comes from: packages of registries, local files, data sets, generators."""
