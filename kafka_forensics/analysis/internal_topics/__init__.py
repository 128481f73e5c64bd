"""The logs of controllers and coordinators replayed into what they say of every partition."""
