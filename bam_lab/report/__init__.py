"""From a store to a report: cells, statistics, claims, tables, figures, rendering."""
