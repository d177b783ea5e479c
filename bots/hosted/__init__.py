"""Any agent of the model library's, hosted behind the contract of an agent."""
