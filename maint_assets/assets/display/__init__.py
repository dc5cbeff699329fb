"""What the UI and the terminal show of each branch."""
