"""Figures beside a bare baseline from the same run, since machines are noisy."""
