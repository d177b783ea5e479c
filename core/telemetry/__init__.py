"""What the gateway reports about itself while it runs: alarms, logs and metrics."""
