"""The image, the size and the first start, looked at without a container engine."""
