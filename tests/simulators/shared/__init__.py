"""What every simulator is built on: the port, the faults, the ground truth, the levers and the server itself."""
