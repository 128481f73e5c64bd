"""`metadata`: every change of every partition by the controller's log."""
