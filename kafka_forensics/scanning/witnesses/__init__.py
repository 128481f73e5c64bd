"""What other logs among the copies testify about a partition: controllers, coordinators, groups."""
