"""What each local op means to the checker, a file a family of ops."""
