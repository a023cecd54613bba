"""One file a claim; each prints a table of ratios against peers measured in the same run."""
