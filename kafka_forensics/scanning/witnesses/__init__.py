"""What other logs among the copies show about a partition: those of controllers, coordinators and groups."""
