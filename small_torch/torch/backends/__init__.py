"""What PyTorch may compute with: here, nothing but the page."""
