"""Is each part to take away equal to PyTorch's own, and right where PyTorch is silent?"""
