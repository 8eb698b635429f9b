"""The nodes of a cluster: who they are, who owns what, and who starts them."""
