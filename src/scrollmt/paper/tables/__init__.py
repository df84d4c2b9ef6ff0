"""From records to what is read: selected runs, statistics, verdicts, tables, figures, pages."""
