"""Choosing which nested codecs of a `conditional` codec apply: decisions, and the arrays that follow them."""
