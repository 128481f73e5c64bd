"""What a fact is: schemas, names for absent values, places, severities. Knows nothing of bytes, engines or words."""
