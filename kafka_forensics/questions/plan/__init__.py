"""`plan`: elections planned on copied directories, and what each would cost."""
