"""What the fences of the book show: outputs, heatmaps, charts and explorables of attention."""
