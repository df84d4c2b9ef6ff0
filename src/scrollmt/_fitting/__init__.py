"""The compiled step, what a batch may cost, selection and members."""
