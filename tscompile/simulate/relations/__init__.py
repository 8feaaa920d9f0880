"""How the sizes of each op's operands are related, a file a family of ops."""
