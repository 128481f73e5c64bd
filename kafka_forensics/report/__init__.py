"""One HTML page that can be sent to people, and lanes: pictures of partitions, which notebooks show as well."""
