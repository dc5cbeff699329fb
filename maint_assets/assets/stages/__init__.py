"""What each stage computes, one module a branch."""
