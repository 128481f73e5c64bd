"""One replica at two times: what was appended, cut off, deleted or changed between them."""
