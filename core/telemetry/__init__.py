"""What the gateway says about itself while it runs: alarms, logs and metrics."""
