"""Records of the internal topics: the controller's, the transaction and group coordinators', and share groups'."""
