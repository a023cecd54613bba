"""One coherent, versioned unit: logical arrays in Icechunk repositories."""
