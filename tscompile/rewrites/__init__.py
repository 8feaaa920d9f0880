"""What each fused op is made of, one rewrite a file: marked nodes to the node that they are."""
