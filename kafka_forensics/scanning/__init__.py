"""How a scan runs: it folds replicas, reads parts of them again, compares them with what other logs show, and judges them."""
