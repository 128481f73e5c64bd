"""`transactions`: every transaction of the copies, one by one."""
